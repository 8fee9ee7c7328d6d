// The state of one window of gradient accumulation. Nobody else keeps a part of it: what the reducer and the
// keepers of gradients may do now, they ask here.
#pragma once

#include <optional>

#include "deepspeed/zero/gradients/window_state.h"

namespace deepspeed::zero {

/// A pure value. The caller holds a lock.
class GradWindow {
 public:
  /// What becomes of a gradient that autograd has made.
  enum class Arrival {
    kRefused,  // the step was begun already
    kTaken,    // it joins the window now
    kLeft      // it stays in its parameter until the backward is finished
  };

  /// always_reduces: every backward reduces, also those before the boundary.
  explicit GradWindow(bool always_reduces) : always_reduces_(always_reduces) {}

  /// Notes an event. Returns false, having changed nothing, where it must not happen now.
  bool note(WindowEvent event);
  bool is_idle() const { return state_ == WindowState::kIdle; }
  bool is_open() const { return zero::is_open(state_); }
  bool is_paused() const { return zero::is_paused(state_); }
  bool has_result() const { return zero::has_result(state_); }

  /// Says whether the backward that runs, or comes next, is the last one before a step.
  void set_boundary(bool boundary) { is_boundary_ = boundary; }
  bool is_boundary() const { return is_boundary_; }
  /// Whether the backward that runs, or comes next, reduces.
  bool reduces() const { return reduces_.value_or(always_reduces_ || is_boundary_); }
  /// Fixes reduces() until the backward has ended, whatever becomes of the boundary. Returns it.
  bool fix_reduces();
  /// Ends the arrivals of a backward. Returns whether its gradients are reduced now; else they wait.
  bool end_arrivals();
  /// Whether the backwards of this window have only summed on this rank.
  bool is_unreduced() const { return is_unreduced_; }

  /// Leaves gradients of backwards that nobody has announced in their parameters, from here on.
  void leave_unannounced() { leaves_unannounced_ = true; }
  void set_announced(bool is_announced) { is_announced_ = is_announced; }
  bool is_announced() const { return is_announced_; }
  /// Notes a gradient, and says what becomes of it. is_foreign: of a backward that was not run for this
  /// window, whose gradients are left in their parameters.
  Arrival on_gradient(bool is_foreign);
  /// Whether gradients were left in their parameters.
  bool has_left_gradients() const { return state_before_left_.has_value(); }
  /// Notes that the gradients left in parameters are taken now. Returns whether there are any.
  bool take_left_gradients();
  /// Forgets the backward whose gradients were left in parameters, if there was one.
  void forget_left_gradients();

  /// Says that a backward has failed in its middle, so that no step may use the window.
  void note_failure() { has_failed_ = true; }
  void forget_failure() { has_failed_ = false; }
  bool has_failed() const { return has_failed_; }
  /// Begins the next window. A pause goes on, with the failure of before.
  void clear();

 private:
  const bool always_reduces_;
  WindowState state_ = WindowState::kIdle;
  bool is_boundary_ = true;      // of the backward that runs or comes next; it may be set at any time
  std::optional<bool> reduces_;  // as the first gradient of the backward found it
  bool is_unreduced_ = false;
  bool has_failed_ = false;
  bool leaves_unannounced_ = false;
  bool is_announced_ = false;
  std::optional<WindowState> state_before_left_;  // before the first gradient that was left in its parameter
};

}  // namespace deepspeed::zero
