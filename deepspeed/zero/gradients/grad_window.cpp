#include "deepspeed/zero/gradients/grad_window.h"

#include <utility>

namespace deepspeed::zero {

bool GradWindow::note(WindowEvent event) {
  const std::optional<WindowState> next = after(state_, event);
  if (next) state_ = *next;
  return next.has_value();
}

bool GradWindow::fix_reduces() {
  reduces_ = reduces();
  return *reduces_;
}

bool GradWindow::end_arrivals() {
  is_unreduced_ = !reduces() && !is_boundary_;
  reduces_.reset();
  return !is_unreduced_;
}

GradWindow::Arrival GradWindow::on_gradient(bool is_foreign) {
  const WindowState before = state_;
  if (!note(WindowEvent::kGradient)) return Arrival::kRefused;
  if (is_announced_ || !(leaves_unannounced_ || is_foreign)) {
    if (state_before_left_)
      state_before_left_ = state_;  // gradients taken now are not dropped with the others
    return Arrival::kTaken;
  }
  if (!state_before_left_) state_before_left_ = before;
  return Arrival::kLeft;
}

bool GradWindow::take_left_gradients() { return std::exchange(state_before_left_, std::nullopt).has_value(); }

void GradWindow::forget_left_gradients() {
  if (state_before_left_) state_ = *std::exchange(state_before_left_, std::nullopt);
}

void GradWindow::clear() {
  note(WindowEvent::kClear);
  is_unreduced_ = false;
  reduces_.reset();
  if (!is_paused()) has_failed_ = false;
}

}  // namespace deepspeed::zero
