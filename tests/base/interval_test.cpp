#include "deepspeed/base/interval.h"

#include <gtest/gtest.h>

namespace deepspeed {
namespace {

TEST(Interval, IntersectionOfDisjointIntervalsIsEmptyNotNegative) {
  EXPECT_TRUE(intersect({0, 4}, {6, 9}).empty());
  EXPECT_EQ(intersect({0, 4}, {6, 9}).numel(), 0);
  EXPECT_EQ(intersect({0, 7}, {6, 9}), (Interval{6, 7}));
}

}  // namespace
}  // namespace deepspeed
