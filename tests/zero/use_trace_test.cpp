#include "deepspeed/zero/use_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepspeed::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Key k has 10 * k elements.
void run_pass(UseTrace& trace, const std::vector<uint64_t>& keys) {
  trace.begin();
  for (const uint64_t key : keys) trace.use({key, static_cast<int64_t>(10 * key)});
  trace.end();
}

TEST(UseTrace, KnowsNothingInTheFirstPass) {
  UseTrace trace;
  trace.begin();
  trace.use({1, 10});
  EXPECT_FALSE(trace.is_followed());
  EXPECT_THAT(trace.ahead(1000), IsEmpty());
  EXPECT_EQ(trace.distance_to(1), std::nullopt);
}

TEST(UseTrace, KnowsWhatComesNextInLaterPasses) {
  UseTrace trace;
  run_pass(trace, {1, 2, 3, 2, 1, 4});
  trace.begin();
  EXPECT_TRUE(trace.is_followed());
  EXPECT_THAT(trace.ahead(30), ElementsAre(1, 2));
  trace.use({1, 10});
  EXPECT_THAT(trace.ahead(1000), ElementsAre(2, 3, 1, 4));
  EXPECT_THAT(trace.ahead(50), ElementsAre(2, 3));  // 2 again costs nothing, 1 would be too much
  EXPECT_THAT(trace.ahead(19), IsEmpty());
  EXPECT_EQ(trace.distance_to(1), 20 + 30 + 20);
  EXPECT_EQ(trace.distance_to(2), 0);
  trace.use({2, 20});
  trace.use({3, 30});
  EXPECT_EQ(trace.distance_to(3), std::nullopt);
}

TEST(UseTrace, IsRecordedAnewFromWhereAPassLeavesIt) {
  UseTrace trace;
  run_pass(trace, {1, 2, 3, 4});
  trace.begin();
  trace.use({1, 10});
  trace.use({3, 30});
  EXPECT_FALSE(trace.is_followed());
  EXPECT_THAT(trace.ahead(1000), IsEmpty());
  trace.use({2, 20});
  trace.end();
  trace.begin();
  EXPECT_THAT(trace.ahead(1000), ElementsAre(1, 3, 2));
}

TEST(UseTrace, CountsUsesInARowAsOne) {
  UseTrace trace;
  run_pass(trace, {1, 1, 2, 2, 2, 1});
  EXPECT_EQ(trace.size(), 3U);
  run_pass(trace, {1, 2, 2, 1});
  EXPECT_EQ(trace.size(), 3U);
}

TEST(UseTrace, EndsWhereAPassEnds) {
  UseTrace trace;
  run_pass(trace, {1, 2, 3});
  run_pass(trace, {1});
  EXPECT_EQ(trace.size(), 1U);
  run_pass(trace, {1, 2});
  EXPECT_EQ(trace.size(), 2U);
  run_pass(trace, {});
  EXPECT_EQ(trace.size(), 0U);
}

}  // namespace
}  // namespace deepspeed::zero
