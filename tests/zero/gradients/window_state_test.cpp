#include "deepspeed/zero/gradients/window_state.h"

#include <initializer_list>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace deepspeed::zero {
namespace {

using enum WindowState;
using enum WindowEvent;

std::vector<WindowState> window_states() {
  std::vector<WindowState> states;
  for (int state = 0; state < kNumWindowStates; ++state) states.push_back(static_cast<WindowState>(state));
  return states;
}

std::vector<WindowEvent> window_events() {
  std::vector<WindowEvent> events;
  for (int event = 0; event < kNumWindowEvents; ++event) events.push_back(static_cast<WindowEvent>(event));
  return events;
}

std::optional<WindowState> after_all_of(std::initializer_list<WindowEvent> events) {
  std::optional<WindowState> state = kIdle;
  for (const WindowEvent event : events) {
    if (state) state = after(*state, event);
  }
  return state;
}

TEST(WindowState, IsReducedAfterTheBoundarysBackwardAlone) {
  EXPECT_EQ(after_all_of({kGradient}), kOpen);
  EXPECT_EQ(after_all_of({kGradient, kEnd}), kIdle);
  EXPECT_EQ(after_all_of({kGradient, kEnd, kGradient, kEndAtBoundary}), kReduced);
  EXPECT_EQ(after_all_of({kEndAtBoundary}), kReduced);  // a backward without gradients
  EXPECT_EQ(after_all_of({kGradient, kEndAtBoundary, kClear}), kIdle);
}

TEST(WindowState, LosesItsResultToAnotherGradient) {
  EXPECT_EQ(after_all_of({kGradient, kEndAtBoundary, kGradient}), kOpen);
  EXPECT_EQ(after_all_of({kGradient, kEndAtBoundary, kEnd}), kIdle);
}

TEST(WindowState, RefusesGradientsAfterTheStepWasBegunWithTheResult) {
  EXPECT_EQ(after_all_of({kGradient, kFinalPart, kGradient}), kOpenBegun);
  EXPECT_EQ(after_all_of({kGradient, kFinalPart, kEndAtBoundary}), kBegun);
  EXPECT_EQ(after_all_of({kGradient, kFinalPart, kEndAtBoundary, kGradient}), std::nullopt);
  EXPECT_EQ(after_all_of({kGradient, kFinalPart, kEndAtBoundary, kClear, kGradient}), kOpen);
}

TEST(WindowState, LeavesGradientsAloneWhilePausedAndKeepsTheResult) {
  EXPECT_EQ(after_all_of({kPause, kGradient, kEnd}), kPaused);
  EXPECT_EQ(after_all_of({kPause, kGradient, kResume}), kIdle);
  EXPECT_EQ(after_all_of({kGradient, kEndAtBoundary, kPause, kGradient, kResume}), kReduced);
  EXPECT_EQ(after_all_of({kPause, kClear}), kPaused);
  EXPECT_EQ(after_all_of({kPause, kEndAtBoundary}), kPausedReduced);
}

TEST(WindowState, TakesNoPauseAndNoNewBucketsWithinABackward) {
  for (const WindowState state : window_states()) {
    EXPECT_EQ(after(state, kPause).has_value(), !is_open(state)) << static_cast<int>(state);
    EXPECT_EQ(after(state, kLayBuckets).has_value(), !is_open(state)) << static_cast<int>(state);
  }
}

TEST(WindowState, FollowsTheMeaningOfEachEventFromEveryState) {
  for (const WindowState state : window_states()) {
    EXPECT_EQ(is_open(state) + is_paused(state) + has_result(state) > 1,
              is_paused(state) && has_result(state));
    for (const WindowEvent event : window_events()) {
      const auto next = after(state, event);
      if (!next) continue;
      SCOPED_TRACE(::testing::Message() << static_cast<int>(state) << " at " << static_cast<int>(event));
      EXPECT_EQ(is_paused(*next), event == kPause || (is_paused(state) && event != kResume));
      const bool ends = event == kClear || event == kEnd;
      EXPECT_FALSE(ends && (is_open(*next) || has_result(*next)));
      EXPECT_TRUE(event != kEndAtBoundary || has_result(*next));
      EXPECT_TRUE(event != kLayBuckets || *next == state);
      EXPECT_TRUE((event != kPause && event != kResume) || has_result(*next) == has_result(state));
    }
  }
}

}  // namespace
}  // namespace deepspeed::zero
