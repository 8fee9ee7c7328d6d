#include "deepspeed/zero/offload/slice_arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepspeed::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SliceArrivals, CompleteASliceWithItsLastPart) {
  // Slices of 10 elements; parts of 6, which straddle them, and one in the other group.
  SliceArrivals arrivals({{0, {0, 10}}, {0, {10, 20}}, {1, {0, 10}}},
                         {{0, {0, 6}}, {0, {6, 12}}, {0, {12, 18}}, {0, {18, 20}}, {1, {0, 10}}});
  EXPECT_THAT(arrivals.note({0, {18, 20}}), IsEmpty());
  EXPECT_THAT(arrivals.note({0, {12, 18}}), IsEmpty());
  EXPECT_THAT(arrivals.note({0, {6, 12}}), ElementsAre(1));
  EXPECT_THAT(arrivals.note({1, {0, 10}}), ElementsAre(2));
  EXPECT_THAT(arrivals.note({0, {0, 6}}), ElementsAre(0));
}

TEST(SliceArrivals, CompleteSeveralSlicesWithOnePart) {
  SliceArrivals arrivals({{0, {0, 2}}, {0, {2, 4}}, {0, {4, 4}}}, {{0, {0, 4}}});
  EXPECT_THAT(arrivals.note({0, {0, 4}}), ElementsAre(0, 1));
}

}  // namespace
}  // namespace deepspeed::zero
