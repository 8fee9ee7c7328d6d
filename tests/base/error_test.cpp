// What the text of an error says of the place that it comes from.
#include "deepspeed/base/error.h"

#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

void check_even(int number, const std::source_location& where = std::source_location::current()) {
  if (number % 2 != 0) raise_at<UsageError>(where, number, " is odd");
}

TEST(Error, NamesTheFolderAndTheFileOfTheCallThatRaisesIt) {
  EXPECT_EQ(testing::error_of<IoError>([] { raise<IoError>("cannot read ", 3, " bytes"); }),
            "[base.error_test] cannot read 3 bytes");
  EXPECT_EQ(testing::error_of<UsageError>([] { raise<UsageError>(7); }), "[base.error_test] 7");
  EXPECT_EQ(located("later: ", 1), "[base.error_test] later: 1");
}

TEST(Error, NamesTheCallerOfAFunctionThatChecksForOthers) {
  EXPECT_ERROR(UsageError, check_even(3), "[base.error_test] 3 is odd");
}

TEST(Error, NamesOnlyTheKeyIfItIsOfTheConfig) {
  EXPECT_EQ(testing::error_of<ConfigError>([] { raise<ConfigError>("fp16.clip: got -1"); }),
            "[config] fp16.clip: got -1");
}

// The names are those that compilers give: of a build folder's side, absolute, or of the program's own
// folder.
TEST(Error, PartIsTheFolderBelowDeepspeedOrElseTheFilesOwn) {
  EXPECT_EQ(part_of_file("/home/me/deepspeed/deepspeed/zero/update/slice_set.cpp"), "zero.slice_set");
  EXPECT_EQ(part_of_file("../../deepspeed/engine/engine.cpp"), "engine");
  EXPECT_EQ(part_of_file("deepspeed/initialize.cpp"), "initialize");
  EXPECT_EQ(part_of_file("examples/gpt2/gpt.cpp"), "gpt2.gpt");
  EXPECT_EQ(part_of_file("train.cpp"), "train");
}

}  // namespace
}  // namespace deepspeed
