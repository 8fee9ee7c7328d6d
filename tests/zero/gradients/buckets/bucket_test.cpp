#include "deepspeed/zero/gradients/buckets/bucket.h"

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/gradients/buckets/launch_order.h"

#include "tests/support/error_of.h"

namespace deepspeed::zero {
namespace {

TEST(Buckets, FillFromTheEndAndNeverCutAParameter) {
  const std::vector<FlatLayout> layouts{FlatLayout({4, 6, 3, 3}, 2)};
  const auto buckets = make_buckets(layouts, 7);
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_EQ(buckets[0].in_flat, (Interval{10, 16}));
  EXPECT_EQ(buckets[0].params, (std::vector<size_t>{2, 3}));
  EXPECT_EQ(buckets[1].in_flat, (Interval{4, 10}));
  EXPECT_EQ(buckets[2].in_flat, (Interval{0, 4}));
}

TEST(Buckets, GiveALargerParameterABucketOfItsOwn) {
  const auto buckets = make_buckets({FlatLayout({2, 100, 2}, 2)}, 10);
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_EQ(buckets[1].in_flat.numel(), 100);
}

TEST(Buckets, KeepGroupsApartAndLeaveOutEmptyParameters) {
  const auto buckets = make_buckets({FlatLayout({2, 0}, 2), FlatLayout({3}, 2)}, 1000);
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].group, 1U);
  EXPECT_EQ(buckets[1].params, (std::vector<size_t>{0}));
  EXPECT_ERROR(UsageError, make_buckets({FlatLayout({2}, 1)}, 0),
               "bucket size 0, expected at least 1 element");
}

TEST(LaunchOrder, WaitsForAnEarlierBucketWhateverComesFirst) {
  const auto buckets = make_buckets({FlatLayout({4, 4}, 2)}, 4);
  LaunchOrder order(buckets, {2});
  order.mark_arrived(0, 0);  // belongs to the second bucket
  EXPECT_FALSE(order.take_complete());
  order.mark_arrived(0, 1);
  order.mark_arrived(0, 1);
  EXPECT_EQ(order.take_complete(), 0U);
  EXPECT_TRUE(order.was_launched(0, 1));
  EXPECT_FALSE(order.was_launched(0, 0));
  EXPECT_EQ(order.take_complete(), 1U);
  EXPECT_FALSE(order.take_any());
  order.reset();
  EXPECT_FALSE(order.take_complete());
  EXPECT_EQ(order.take_any(), 0U);
}

}  // namespace
}  // namespace deepspeed::zero
