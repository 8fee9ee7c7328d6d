#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/profile/memory_report.h"
#include "deepspeed/profile/step_timers.h"
#include "deepspeed/profile/throughput.h"

namespace deepspeed::profile {
namespace {

using ::testing::MatchesRegex;

void pass_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

void spend(StepTimers* timers, StepPart part, int ms) {
  const StepTimers::Scope scope(timers, part);
  pass_ms(ms);
}

TEST(StepTimers, AddUpEachPartAndRestartAfterALine) {
  StepTimers timers;
  EXPECT_TRUE(timers.last().empty());
  spend(&timers, StepPart::kForward, 20);
  spend(&timers, StepPart::kForward, 20);
  spend(&timers, StepPart::kStep, 5);
  EXPECT_THAT(timers.micro_step_line(),
              MatchesRegex("time \\(ms\\) \\| fwd_microstep: [0-9]+\\.[0-9][0-9] \\| bwd_microstep: 0\\.00 "
                           "\\| bwd_inner_microstep: 0\\.00 \\| bwd_allreduce_microstep: 0\\.00 \\| "
                           "step_microstep: [0-9]+\\.[0-9][0-9]"));
  EXPECT_GE(timers.last().at("fwd_microstep"), 40.0);
  EXPECT_GE(timers.last().at("step_microstep"), 5.0);
  spend(&timers, StepPart::kForward, 20);
  timers.micro_step_line();
  EXPECT_GE(timers.last().at("fwd_microstep"), 20.0);
  EXPECT_EQ(timers.last().at("step_microstep"), 0.0);
  EXPECT_THAT(timers.global_line(), MatchesRegex("time \\(ms\\) \\| fwd: .* \\| bwd: .* \\| step: .*"));
  EXPECT_GE(timers.last().at("fwd"), 60.0);
  timers.global_line();
  EXPECT_EQ(timers.last().at("fwd"), 0.0);
}

TEST(StepTimers, AreNotNeededForAScope) { spend(nullptr, StepPart::kForward, 0); }

TEST(Throughput, LeavesOutTheFirstStepsAndPauses) {
  Throughput throughput(/*synchronized=*/true);
  pass_ms(50);  // before the first steps
  throughput.end_step(1000000);
  throughput.end_step(1000000);
  EXPECT_FALSE(throughput.read());
  pass_ms(40);
  throughput.end_step(10);
  const auto first = throughput.read();
  ASSERT_TRUE(first);
  EXPECT_GT(first->average, 0.0);
  EXPECT_LE(first->average, 10 / 0.040);
  EXPECT_EQ(first->average, first->current);
  throughput.pause();
  pass_ms(2000);
  throughput.resume();
  throughput.end_step(1000);
  const auto second = throughput.read();
  EXPECT_GT(second->current, 1000 / 2.0) << "the pause counts";
  EXPECT_GT(second->current, second->average);
  EXPECT_GT(second->average, first->average);
}

TEST(MemoryReport, SaysWhatTheProcessHolds) {
  EXPECT_THAT(memory_in_use(), MatchesRegex("allocated [0-9]+\\.[0-9][0-9] GB, at most [0-9]+\\.[0-9][0-9] "
                                            "GB; process [0-9]+\\.[0-9][0-9] GB, at most "
                                            "[0-9]+\\.[0-9][0-9] GB"));
}

}  // namespace
}  // namespace deepspeed::profile
