// States of a gradient accumulation window for GradReducer: a pure table of states and events.
#pragma once

#include <optional>

namespace deepspeed::zero {

enum class WindowState {
  kIdle,           // between backwards; there may be sums, but no result
  kOpen,           // a backward has begun and is not finished
  kOpenBegun,      // like kOpen, and final parts were passed on to the step
  kReduced,        // the window's gradients are reduced
  kBegun,          // like kReduced, and the step has begun with them
  kPaused,         // gradients stay in their parameters
  kPausedReduced,  // like kPaused, with an earlier result
  kPausedBegun,    // like kPausedReduced, and the step has begun with it
};
inline constexpr int kNumWindowStates = 8;

enum class WindowEvent {
  kGradient,       // autograd has made a gradient
  kFinalPart,      // a part of the sums was passed on to the step
  kEnd,            // a backward before the boundary has ended, or a backward was given up
  kEndAtBoundary,  // the reductions of the boundary's backward are done
  kClear,          // the next window begins
  kPause,
  kResume,
  kLayBuckets,  // the buckets get another size
};
inline constexpr int kNumWindowEvents = 8;

/// Returns the state after the event; empty if the event is not allowed.
std::optional<WindowState> after(WindowState state, WindowEvent event);

constexpr bool is_open(WindowState state) {
  return state == WindowState::kOpen || state == WindowState::kOpenBegun;
}
constexpr bool is_paused(WindowState state) {
  return state == WindowState::kPaused || state == WindowState::kPausedReduced ||
         state == WindowState::kPausedBegun;
}
constexpr bool has_result(WindowState state) {
  return state == WindowState::kReduced || state == WindowState::kBegun ||
         state == WindowState::kPausedReduced || state == WindowState::kPausedBegun;
}

}  // namespace deepspeed::zero
