#include "deepspeed/zero/gradients/window_state.h"

#include <array>
#include <cstddef>

namespace deepspeed::zero {
namespace {

using enum WindowState;
using WindowRow = std::array<std::optional<WindowState>, kNumWindowEvents>;

constexpr std::nullopt_t kNever = std::nullopt;

// Each row is a state, in the order of the enum. kEnd forgets that parts were passed on: only a result with
// which the step has begun refuses gradients.
constexpr std::array<WindowRow, kNumWindowStates> kWindowTable = {{
    // kGradient, kFinalPart, kEnd, kEndAtBoundary, kClear, kPause, kResume, kLayBuckets
    {kOpen, kOpenBegun, kIdle, kReduced, kIdle, kPaused, kIdle, kIdle},               // kIdle
    {kOpen, kOpenBegun, kIdle, kReduced, kIdle, kNever, kOpen, kNever},               // kOpen
    {kOpenBegun, kOpenBegun, kIdle, kBegun, kIdle, kNever, kOpenBegun, kNever},       // kOpenBegun
    {kOpen, kOpenBegun, kIdle, kReduced, kIdle, kPausedReduced, kReduced, kReduced},  // kReduced
    {kNever, kBegun, kIdle, kBegun, kIdle, kPausedBegun, kBegun, kBegun},             // kBegun
    {kPaused, kNever, kPaused, kPausedReduced, kPaused, kPaused, kIdle, kPaused},     // kPaused
    {kPausedReduced, kNever, kPaused, kPausedReduced, kPaused, kPausedReduced, kReduced, kPausedReduced},
    // Gradients from a pause join the window again, although the step has begun.
    {kPausedBegun, kNever, kPaused, kPausedBegun, kPaused, kPausedBegun, kReduced, kPausedBegun},
}};

}  // namespace

std::optional<WindowState> after(WindowState state, WindowEvent event) {
  return kWindowTable[static_cast<size_t>(state)][static_cast<size_t>(event)];
}

}  // namespace deepspeed::zero
