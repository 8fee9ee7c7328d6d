#include "deepspeed/launcher/node/line_tail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepspeed::launcher {
namespace {

using ::testing::ElementsAre;

TEST(LineTail, KeepsTheLastLines) {
  LineTail tail(2);
  tail.append("a\nb\nc");
  tail.append("d\n\n");
  EXPECT_THAT(tail.lines(), ElementsAre("cd"));
  tail.append("e");
  EXPECT_THAT(tail.lines(), ElementsAre("", "e"));
}

TEST(LineTail, KeepsTheExceptionAboveAStack) {
  LineTail tail(2);
  tail.append("begin\nterminate called after throwing an instance of 'c10::Error'\n  what():  wrong sizes\n");
  tail.append("frame #0\nframe #1\nframe #2\n");
  EXPECT_THAT(tail.lines(), ElementsAre("terminate called after throwing an instance of 'c10::Error'",
                                        "  what():  wrong sizes", "frame #1", "frame #2"));
}

}  // namespace
}  // namespace deepspeed::launcher
