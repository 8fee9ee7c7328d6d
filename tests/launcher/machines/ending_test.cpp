// Which of several failures and signals ends a job, and when it is told.
#include "deepspeed/launcher/machines/ending.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepspeed::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

constexpr auto kNow = Ending::Clock::time_point{} + 1h;

Ending ending_of_run(size_t num_machines = 2) {
  Ending ending;
  ending.begin_run(num_machines);
  return ending;
}

TEST(Ending, TellsAFailureBeforeTheRunAtOnceAndOnlyOnce) {
  Ending ending;
  EXPECT_FALSE(ending.is_stopping());
  EXPECT_EQ(ending.text_to_announce(kNow), std::nullopt);
  EXPECT_TRUE(ending.take_failure({"host a is lost", 1, ""}, kNow)) << "everything has to be stopped";
  EXPECT_TRUE(ending.is_stopping());
  EXPECT_EQ(ending.text_to_announce(kNow), "host a is lost; nothing was started");
  EXPECT_EQ(ending.text_to_announce(kNow + 1h), std::nullopt);
  EXPECT_EQ(ending.end().exit_code, 1);
  EXPECT_FALSE(ending.end().is_failure_of_run) << "another start would not help";
}

TEST(Ending, TakesASignalForTheCauseOfFailuresWithinAMoment) {
  Ending ending = ending_of_run();
  EXPECT_TRUE(ending.take_failure({"rank 1 lost its partner", 3, ""}, kNow));
  EXPECT_EQ(ending.text_to_announce(kNow), std::nullopt) << "a better cause may follow";
  EXPECT_FALSE(ending.take_failure({"rank 0 was killed", 137, "\n  | last line"}, kNow));
  EXPECT_FALSE(ending.take_failure({"rank 2 was killed", 134, ""}, kNow));
  EXPECT_EQ(ending.text_to_announce(kNow + 1s),
            "rank 0 was killed; the ranks of all machines are being stopped\n  | last line");
  EXPECT_EQ(ending.end().exit_code, 137);
  EXPECT_TRUE(ending.end().is_failure_of_run);
}

TEST(Ending, KeepsTheCauseOnceItIsTold) {
  Ending ending = ending_of_run(1);
  ending.take_failure({"rank 1 failed", 3, ""}, kNow);
  EXPECT_EQ(ending.text_to_announce(kNow + 1s), "rank 1 failed; all ranks are being stopped");
  EXPECT_FALSE(ending.take_failure({"rank 0 was killed", 137, ""}, kNow + 1s));
  EXPECT_EQ(ending.text_to_announce(kNow + 1h), std::nullopt);
  EXPECT_EQ(ending.end().exit_code, 3);
}

TEST(Ending, LetsRanksEndBySignalOfTheUserAndStopsThemAtTheSecond) {
  Ending ending = ending_of_run();
  EXPECT_FALSE(ending.take_signal(SIGINT, kNow)) << "the ranks have it, and may save first";
  EXPECT_FALSE(ending.is_overdue(kNow + 1h));
  EXPECT_FALSE(ending.take_failure({"rank 0 was ended by SIGINT", 130, ""}, kNow));
  EXPECT_EQ(ending.text_to_announce(kNow + 1h), std::nullopt);
  EXPECT_TRUE(ending.take_signal(SIGTERM, kNow));
  EXPECT_TRUE(ending.is_overdue(kNow + 1h));
  EXPECT_EQ(ending.end().exit_code, 128 + SIGINT);
  EXPECT_FALSE(ending.end().is_failure_of_run);
}

TEST(Ending, TellsAFailureThatFollowsASignalAndIsNoneItself) {
  Ending ending = ending_of_run();
  ending.take_signal(SIGTERM, kNow);
  EXPECT_TRUE(ending.take_failure({"rank 0 cannot save", 1, ""}, kNow));
  EXPECT_NE(ending.text_to_announce(kNow + 1s), std::nullopt);
  EXPECT_EQ(ending.end().exit_code, 128 + SIGTERM);
}

TEST(Ending, StopsEverythingAtASignalBeforeTheRun) {
  Ending ending;
  EXPECT_TRUE(ending.take_signal(SIGINT, kNow));
  EXPECT_EQ(ending.end().exit_code, 128 + SIGINT);
}

TEST(Ending, GivesUpWhatDoesNotStopInTime) {
  Ending ending = ending_of_run();
  EXPECT_FALSE(ending.is_overdue(kNow + 1h));
  ending.take_failure({"rank 0 failed", 3, ""}, kNow);
  EXPECT_FALSE(ending.is_overdue(kNow + 8s));
  EXPECT_TRUE(ending.is_overdue(kNow + 10s));
}

TEST(Ending, NamesEachLostHostOnce) {
  Ending ending = ending_of_run();
  EXPECT_THAT(ending.end().lost_hosts, IsEmpty());
  for (const char* host : {"b", "a", "b"}) ending.take_lost_host(host);
  EXPECT_THAT(ending.end().lost_hosts, ElementsAre("b", "a"));
  EXPECT_EQ(ending.end().exit_code, 0);
}

}  // namespace
}  // namespace deepspeed::launcher
