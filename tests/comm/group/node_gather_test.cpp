#include "deepspeed/comm/group/node_gather.h"

#include <torch/types.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using testing::run_ranks;

/// Returns nodes of `places` consecutive ranks.
NodeGroups nodes_of(const World& world, int places) {
  NodeGroups nodes;
  std::vector<int> node, across;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank / places == world.rank() / places) node.push_back(rank);
    if (rank % places == world.rank() % places) across.push_back(rank);
  }
  nodes.node = world.own_group("node", "", node);
  nodes.across = world.own_group("across", "", across);
  return nodes;
}

TEST(NodeGather, GivesTheBitsOfOneStep) {
  for (const auto& [ranks, places] : {std::pair(4, 2), {6, 2}, {6, 3}}) {
    run_ranks(ranks, [&, places = places](World& world) {
      const NodeGroups nodes = nodes_of(world, places);
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kByte}) {
        for (const int64_t numel : {1, 5, 1000}) {
          const at::Tensor own = (at::arange(numel) * 3 + 1000 * world.rank()).to(dtype);
          const at::Tensor plain = at::empty({world.size() * numel}, own.options());
          world.group().all_gather(plain, own);
          const at::Tensor stepwise = at::zeros_like(plain);
          Work work = start_all_gather_by_nodes(nodes, stepwise, own);
          work.wait();
          EXPECT_TRUE(stepwise.equal(plain)) << ranks << " ranks, " << places << " a node, " << dtype;
        }
      }
    });
  }
}

TEST(NodeGather, RefusesOneLevelAndOtherSizes) {
  run_ranks(4, [](World& world) {
    const at::Tensor own = at::zeros({3});
    for (const int places : {1, 4}) {
      const NodeGroups one = nodes_of(world, places);
      EXPECT_FALSE(one.has_levels());
      EXPECT_ERROR(UsageError, start_all_gather_by_nodes(one, at::zeros({12}), own), "several nodes");
    }
    EXPECT_ERROR(UsageError, start_all_gather_by_nodes(nodes_of(world, 2), at::zeros({11}), own),
                 "output has 11 elements, expected 12, 3 of each rank");
  });
}

}  // namespace
}  // namespace deepspeed::comm
