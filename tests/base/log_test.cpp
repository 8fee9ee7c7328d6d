#include "deepspeed/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace deepspeed::log {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override {
    set_level(before_);
    set_rank(0);
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

TEST_F(LogTest, RefusesANameThatIsNoLevel) {
  EXPECT_ERROR(UsageError, level_from_name("loud"), "unknown log level 'loud'",
               "warning, error, critical or off");
}

}  // namespace
}  // namespace deepspeed::log
