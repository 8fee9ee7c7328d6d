// How far a window of gradient accumulation has come, as GradReducer sees it: a pure table of states and
// events.
#pragma once

#include <optional>

namespace deepspeed::zero {

enum class WindowState {
  kIdle,           // between backwards; sums may have been begun, but there is no result
  kOpen,           // a backward has begun and was not finished
  kOpenBegun,      // as kOpen, and final parts were passed on to the step
  kReduced,        // the window's gradients are reduced
  kBegun,          // as kReduced, and the step was begun with them
  kPaused,         // gradients stay with their parameters
  kPausedReduced,  // as kPaused, over a result of before
  kPausedBegun,    // as kPausedReduced, and the step was begun with it
};
inline constexpr int kNumWindowStates = 8;

enum class WindowEvent {
  kGradient,       // autograd has made one
  kFinalPart,      // a part of the sums was passed on to the step
  kEnd,            // a backward before the boundary has ended, or one was given up
  kEndAtBoundary,  // the reductions of the boundary's backward are done
  kClear,          // the next window begins
  kPause,
  kResume,
  kLayBuckets,  // the buckets get another size
};
inline constexpr int kNumWindowEvents = 8;

/// The state after the event; nothing where it must not happen in this state.
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
