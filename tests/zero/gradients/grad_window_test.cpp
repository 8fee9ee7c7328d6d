#include "deepspeed/zero/gradients/grad_window.h"

#include <gtest/gtest.h>

namespace deepspeed::zero {
namespace {

using Arrival = GradWindow::Arrival;

void end_backward(GradWindow& window) {
  window.end_arrivals();
  window.note(window.is_boundary() ? WindowEvent::kEndAtBoundary : WindowEvent::kEnd);
}

TEST(GradWindow, HasAResultAfterTheBoundarysBackward) {
  GradWindow window(/*always_reduces=*/false);
  window.set_boundary(false);
  EXPECT_EQ(window.on_gradient(false), Arrival::kTaken);
  EXPECT_TRUE(window.is_open());
  EXPECT_FALSE(window.end_arrivals());
  window.note(WindowEvent::kEnd);
  EXPECT_TRUE(window.is_unreduced());
  EXPECT_FALSE(window.has_result());

  window.set_boundary(true);
  window.on_gradient(false);
  EXPECT_TRUE(window.end_arrivals());
  window.note(WindowEvent::kEndAtBoundary);
  EXPECT_FALSE(window.is_unreduced());
  EXPECT_TRUE(window.has_result());
  window.clear();
  EXPECT_TRUE(window.is_idle());
}

TEST(GradWindow, ReducesBeforeTheBoundaryWhereEveryBackwardDoes) {
  GradWindow window(/*always_reduces=*/true);
  window.set_boundary(false);
  EXPECT_TRUE(window.reduces());
  window.on_gradient(false);
  EXPECT_TRUE(window.end_arrivals());
  EXPECT_FALSE(window.is_unreduced());
}

TEST(GradWindow, KeepsForABackwardWhatItsFirstGradientFound) {
  GradWindow window(/*always_reduces=*/false);
  window.set_boundary(false);
  EXPECT_FALSE(window.fix_reduces());
  window.set_boundary(true);
  EXPECT_FALSE(window.reduces());
  EXPECT_TRUE(window.end_arrivals());  // the boundary was set before the end
  EXPECT_TRUE(window.reduces());

  EXPECT_TRUE(window.fix_reduces());
  window.set_boundary(false);
  EXPECT_TRUE(window.reduces());
  EXPECT_TRUE(window.end_arrivals());
  EXPECT_FALSE(window.reduces());
}

TEST(GradWindow, LeavesGradientsOfABackwardThatNobodyHasAnnounced) {
  GradWindow window(/*always_reduces=*/false);
  window.leave_unannounced();
  window.set_announced(true);
  EXPECT_EQ(window.on_gradient(false), Arrival::kTaken);
  end_backward(window);
  EXPECT_TRUE(window.has_result());
  window.set_announced(false);

  EXPECT_EQ(window.on_gradient(false), Arrival::kLeft);
  EXPECT_EQ(window.on_gradient(false), Arrival::kLeft);
  EXPECT_TRUE(window.has_left_gradients());
  EXPECT_FALSE(window.has_result());
  window.forget_left_gradients();
  EXPECT_FALSE(window.has_left_gradients());
  EXPECT_TRUE(window.has_result());  // as before the first of them

  window.on_gradient(false);
  EXPECT_TRUE(window.take_left_gradients());
  EXPECT_FALSE(window.take_left_gradients());
  EXPECT_TRUE(window.is_open());
}

TEST(GradWindow, KeepsWhatItTakesWhenGradientsOfAnotherEnginesBackwardAreDropped) {
  GradWindow window(/*always_reduces=*/true);
  EXPECT_EQ(window.on_gradient(/*is_foreign=*/true), Arrival::kLeft);
  window.forget_left_gradients();
  EXPECT_TRUE(window.is_idle());

  EXPECT_EQ(window.on_gradient(true), Arrival::kLeft);
  EXPECT_EQ(window.on_gradient(false), Arrival::kTaken);  // a direct loss.backward() came before the drop
  window.forget_left_gradients();
  EXPECT_TRUE(window.is_open());

  window.set_announced(true);
  EXPECT_EQ(window.on_gradient(true), Arrival::kTaken);
}

TEST(GradWindow, RefusesGradientsOnceTheStepHasBegun) {
  GradWindow window(/*always_reduces=*/true);
  window.on_gradient(false);
  window.note(WindowEvent::kFinalPart);
  end_backward(window);
  EXPECT_EQ(window.on_gradient(false), Arrival::kRefused);
  EXPECT_TRUE(window.has_result());
}

TEST(GradWindow, ForgetsAFailureWithTheWindowUnlessItIsPaused) {
  GradWindow window(/*always_reduces=*/false);
  window.note_failure();
  EXPECT_TRUE(window.note(WindowEvent::kPause));
  window.clear();
  EXPECT_TRUE(window.is_paused());
  EXPECT_TRUE(window.has_failed());
  window.note(WindowEvent::kResume);
  window.clear();
  EXPECT_FALSE(window.has_failed());
}

}  // namespace
}  // namespace deepspeed::zero
