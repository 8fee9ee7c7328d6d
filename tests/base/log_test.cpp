#include "deepspeed/base/log.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace deepspeed::log {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::Pair;

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override {
    set_level(before_);
    set_rank(0);
    set_sink({});
  }

  /// The lines of one call of each level.
  static std::string written() {
    ::testing::internal::CaptureStderr();
    debug("of ", 1);
    info("of ", 2);
    warning("of ", 3);
    error("of ", 4);
    return ::testing::internal::GetCapturedStderr();
  }

  Level before_ = level();
};

TEST_F(LogTest, NamesTheLevelAndTheRankOfALine) {
  set_level(level_from_name("Debug"));
  EXPECT_THAT(written(), AllOf(HasSubstr("[debug] [rank 0] of 1\n"), HasSubstr("[info] [rank 0] of 2\n"),
                               HasSubstr("[warning] [rank 0] of 3\n"), HasSubstr("[error] [rank 0] of 4\n")));
}

TEST_F(LogTest, BeginsWithTheTimeAndHasNoColorsForAFile) {
  set_level(Level::kError);
  EXPECT_THAT(
      written(),
      MatchesRegex("[[][0-9]{4}(-[0-9]{2}){2} [0-9]{2}(:[0-9]{2}){2}[]] [[]error[]] [[]rank 0[]] of 4\n"));
}

TEST_F(LogTest, LogsLinesAboutTheConfigOnlyOnRank0) {
  const auto warned_on_rank = [](int rank) {
    set_rank(rank);
    ::testing::internal::CaptureStderr();
    warning("[config] without effect: aio.thread_count");
    warning("[engine] a gradient is missing");
    write(Level::kWarning, "[config] of this rank", /*on_every_rank=*/true);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(warned_on_rank(0), HasSubstr("without effect"));
  EXPECT_THAT(warned_on_rank(1), AllOf(Not(HasSubstr("without effect")), HasSubstr("a gradient is missing"),
                                       HasSubstr("of this rank")));
}

TEST_F(LogTest, DropsWhatIsBelowTheLevel) {
  set_level(level_from_name("critical"));
  EXPECT_THAT(written(), AllOf(HasSubstr("of 4"), Not(HasSubstr("of 3"))));
  set_level(level_from_name("off"));
  EXPECT_EQ(written(), "");
  ::testing::internal::CaptureStderr();
  write(Level::kOff, "of no level");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(LogTest, HearsOtherRanksFromWarningsOn) {
  set_level(Level::kDebug);
  set_rank(3);
  EXPECT_THAT(written(), AllOf(HasSubstr("[warning] [rank 3] of 3\n"), HasSubstr("[error] [rank 3] of 4\n"),
                               Not(HasSubstr("of 2")), Not(HasSubstr("of 1"))));
  ::testing::internal::CaptureStderr();
  write(Level::kInfo, "of each rank", /*on_every_rank=*/true);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("[info] [rank 3] of each rank\n"));
}

TEST_F(LogTest, GivesTheLinesToTheSinkInPlaceOfStandardError) {
  std::vector<std::pair<Level, std::string>> lines;
  set_level(Level::kInfo);
  EXPECT_FALSE(set_sink([&](Level level, const std::string& line) { lines.emplace_back(level, line); }));
  EXPECT_EQ(written(), "");
  EXPECT_THAT(lines, ElementsAre(Pair(Level::kInfo, "[rank 0] of 2"), Pair(Level::kWarning, "[rank 0] of 3"),
                                 Pair(Level::kError, "[rank 0] of 4")));
  lines.clear();
  set_rank(3);
  EXPECT_EQ(written(), "");
  EXPECT_THAT(lines,
              ElementsAre(Pair(Level::kWarning, "[rank 3] of 3"), Pair(Level::kError, "[rank 3] of 4")));
  EXPECT_TRUE(set_sink({}));
  EXPECT_THAT(written(), HasSubstr("[warning] [rank 3] of 3\n"));
  EXPECT_EQ(lines.size(), 2U);
}

TEST_F(LogTest, WritesWhatTheSinkThrowsAtOrLogsItself) {
  set_sink([](Level, const std::string&) { throw std::runtime_error("full"); });
  EXPECT_THAT(written(), AllOf(HasSubstr("[info] [rank 0] of 2\n"), HasSubstr("[error] [rank 0] of 4\n")));
  int calls = 0;
  set_sink([&](Level, const std::string& line) {
    ++calls;
    warning("took ", line);
  });
  EXPECT_THAT(written(), AllOf(HasSubstr("[warning] [rank 0] took [rank 0] of 3\n"),
                               Not(HasSubstr("took [rank 0] took"))));
  EXPECT_EQ(calls, 3);
}

TEST_F(LogTest, LosesNoLineWhileThreadsLogAndTheSinkChanges) {
  constexpr int kLines = 500;
  std::atomic<int> first{0}, second{0};
  const auto count_in = [](std::atomic<int>& count) { return [&](Level, const std::string&) { ++count; }; };
  set_sink(count_in(first));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([] {
      for (int line = 0; line < kLines; ++line) error("line ", line);
    });
  }
  for (int change = 0; change < 100; ++change) set_sink(count_in(change % 2 == 0 ? second : first));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first + second, 4 * kLines);
}

TEST_F(LogTest, RefusesANameThatIsNoLevel) {
  EXPECT_ERROR(UsageError, level_from_name("loud"), "unknown log level 'loud'",
               "warning, error, critical or off");
}

}  // namespace
}  // namespace deepspeed::log
