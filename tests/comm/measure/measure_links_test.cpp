#include "deepspeed/comm/measure/measure_links.h"

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/group/group_nodes.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

TEST(MeasureLinks, GivesAllRanksTheSameFigures) {
  run_ranks(4, [](comm::World& world) {
    const auto nodes = comm::nodes_of_group({0, 1, 2, 3}, world.rank(), 2);
    const auto node = world.own_group("node", "", nodes->node),
               across = world.own_group("across", "", nodes->across);
    const auto figures =
        comm::measure_links(world.group(), node, across, {.large_bytes = 1 << 20, .trials = 3});
    for (const double number : {figures.within_node.latency_us, figures.within_node.gbps,
                                figures.between_nodes.latency_us, figures.between_nodes.gbps}) {
      EXPECT_GT(number, 0);
      EXPECT_LT(number, 1e7);
      EXPECT_EQ(number, world.group().all_reduce_scalar(number, comm::ReduceOp::kMax));
      EXPECT_EQ(number, world.group().all_reduce_scalar(number, comm::ReduceOp::kMin));
    }
    const auto alone = world.own_group("alone", "", {world.rank()});
    EXPECT_ERROR(UsageError, comm::measure_links(world.group(), world.group(), alone), "1 nodes of 4 ranks",
                 "DEEPSPEED_RANKS_PER_NODE");
    EXPECT_ERROR(UsageError, comm::measure_links(world.group(), node, across, {.large_bytes = 8}),
                 "large_bytes");
  });
}

TEST(MeasureLinks, TellsNoSpeedThatAChanceWouldMake) {
  const auto line =
      comm::speed_by_line({.bits = 8000, .microseconds = 10}, {.bits = 8e6, .microseconds = 1009});
  EXPECT_DOUBLE_EQ(line.gbps, 8.0);
  EXPECT_DOUBLE_EQ(line.latency_us, 9.0);
  for (const double small : {1000.0, 1009.0, 50000.0}) {
    const auto speed =
        comm::speed_by_line({.bits = 8000, .microseconds = small}, {.bits = 8e6, .microseconds = 1000});
    EXPECT_NEAR(speed.gbps, 8 * 8.0, 0.1) << small;
    EXPECT_GT(speed.latency_us, 0) << small;
    EXPECT_NO_THROW(comm::link_figures_of(comm::link_figures_json({speed, speed}), "figures")) << small;
  }
}

}  // namespace
}  // namespace deepspeed::testing
