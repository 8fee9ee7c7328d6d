#include "deepspeed/comm/backends/nodes/link_choice.h"

#include <torch/types.h>

#include <gtest/gtest.h>

namespace deepspeed::comm {
namespace {

constexpr NodeShape kTwoOfTwo{2, 2};
constexpr LinkFigures kSlowBetween{{10, 40}, {100, 1}}, kAlike{{10, 40}, {10, 80}};
constexpr int64_t kMegabyte = 1'000'000;

TEST(LinkChoice, TimesFollowFromLatenciesAndBytes) {
  // For parts of 250,000 bytes, 2 Mbit take 50 us within a node and 2000 us over a link of 1 Gbit/s alone.
  const WayTimes gather = estimate(kSlowBetween, kTwoOfTwo, false, kMegabyte);
  EXPECT_DOUBLE_EQ(gather.flat, 100 + 2 * 4000 + 50);
  EXPECT_DOUBLE_EQ(gather.by_nodes, 100 + 4000 + 10 + 2 * 50 + 4 * 50);
  const WayTimes sum = estimate(kSlowBetween, kTwoOfTwo, true, kMegabyte);
  EXPECT_DOUBLE_EQ(sum.flat, 2 * (100 + 2 * 4000 + 50));
  EXPECT_DOUBLE_EQ(sum.by_nodes, 2 * (100 + 4000 + 10 + 2 * 50));
}

TEST(LinkChoice, GoesByNodesWhereTheLinkBetweenThemIsSlow) {
  const at::Tensor large = at::zeros({kMegabyte}), small = at::zeros({4});
  EXPECT_TRUE(is_faster_by_nodes(kSlowBetween, kTwoOfTwo, {operations::AllReduce{large, ReduceOp::kSum}}));
  EXPECT_TRUE(is_faster_by_nodes(kSlowBetween, kTwoOfTwo, {operations::AllGather{large, large}}));
  EXPECT_TRUE(
      is_faster_by_nodes(kSlowBetween, kTwoOfTwo, {operations::ReduceScatter{large, large, ReduceOp::kSum}}));
  EXPECT_TRUE(is_faster_by_nodes(kSlowBetween, kTwoOfTwo, {operations::ReduceToOwners{large, {}}}));
  EXPECT_FALSE(is_faster_by_nodes(kSlowBetween, kTwoOfTwo, {operations::AllReduce{small, ReduceOp::kSum}}))
      << "the latency of one more step is more than a few bytes save";
  EXPECT_FALSE(is_faster_by_nodes(kAlike, kTwoOfTwo, {operations::AllReduce{large, ReduceOp::kSum}}));
  EXPECT_FALSE(is_faster_by_nodes(kAlike, kTwoOfTwo, {operations::AllGather{large, large}}));
}

TEST(LinkChoice, OtherOperationsGoAsEver) {
  const at::Tensor large = at::zeros({kMegabyte});
  EXPECT_FALSE(is_faster_by_nodes(kSlowBetween, kTwoOfTwo, {operations::Broadcast{large, 0}}));
  EXPECT_FALSE(is_faster_by_nodes(kSlowBetween, kTwoOfTwo, {operations::AllToAll{large, large}}));
  EXPECT_FALSE(is_faster_by_nodes(kSlowBetween, kTwoOfTwo, {operations::Send{large, 0, 0}}));
  EXPECT_FALSE(is_faster_by_nodes(kSlowBetween, kTwoOfTwo, {operations::Barrier{}}));
}

}  // namespace
}  // namespace deepspeed::comm
