// Holds the whole state of one gradient accumulation window. The reducer and the keepers ask it what they may
// do.
#pragma once

#include <optional>

#include "deepspeed/zero/gradients/window_state.h"

namespace deepspeed::zero {

/// Tracks one accumulation window; a pure value. The caller holds a lock.
class GradWindow {
 public:
  /// Says what happens to a gradient that autograd has made.
  enum class Arrival {
    kRefused,  // the step has already begun
    kTaken,    // it joins the window now
    kLeft      // it stays in its parameter until the backward is finished
  };

  /// always_reduces: every backward sums over the ranks, also before the accumulation boundary.
  explicit GradWindow(bool always_reduces) : always_reduces_(always_reduces) {}

  /// Notes an event. Returns false and changes nothing if it is not allowed now.
  bool note(WindowEvent event);
  bool is_idle() const { return state_ == WindowState::kIdle; }
  bool is_open() const { return zero::is_open(state_); }
  bool is_paused() const { return zero::is_paused(state_); }
  bool has_result() const { return zero::has_result(state_); }

  /// Sets whether the current or next backward is the last one before a step.
  void set_boundary(bool boundary) { is_boundary_ = boundary; }
  bool is_boundary() const { return is_boundary_; }
  /// Returns whether the current or next backward sums over the ranks.
  bool reduces() const { return reduces_.value_or(always_reduces_ || is_boundary_); }
  /// Returns reduces(), and fixes it until the backward has ended, even if the boundary changes.
  bool fix_reduces();
  /// Notes that a backward has made all its gradients. Returns whether they are reduced now; if not, they
  /// wait.
  bool end_arrivals();
  /// Returns whether the window's gradients are only summed on this rank.
  bool is_unreduced() const { return is_unreduced_; }

  /// Leaves gradients of later backwards in their parameters, unless set_announced(true) was called.
  void leave_unannounced() { leaves_unannounced_ = true; }
  void set_announced(bool is_announced) { is_announced_ = is_announced; }
  bool is_announced() const { return is_announced_; }
  /// Notes a gradient, and returns what happens to it. is_foreign: the backward was not run for this window,
  /// so the gradient stays in its parameter.
  Arrival on_gradient(bool is_foreign);
  /// Returns whether gradients were left in their parameters.
  bool has_left_gradients() const { return state_before_left_.has_value(); }
  /// Notes that the gradients left in parameters are taken now. Returns whether there are any.
  bool take_left_gradients();
  /// Forgets the backward whose gradients were left in parameters, if any.
  void forget_left_gradients();

  /// Notes that a backward has failed midway, so that no step may use the window.
  void note_failure() { has_failed_ = true; }
  void forget_failure() { has_failed_ = false; }
  bool has_failed() const { return has_failed_; }
  /// Begins the next window and forgets a failure. While paused, the pause and its failure stay.
  void clear();

 private:
  const bool always_reduces_;
  WindowState state_ = WindowState::kIdle;
  bool is_boundary_ = true;      // for the current or next backward; it may be set at any time
  std::optional<bool> reduces_;  // fixed at the backward's first gradient
  bool is_unreduced_ = false;
  bool has_failed_ = false;
  bool leaves_unannounced_ = false;
  bool is_announced_ = false;
  std::optional<WindowState> state_before_left_;  // before the first gradient that was left in its parameter
};

}  // namespace deepspeed::zero
