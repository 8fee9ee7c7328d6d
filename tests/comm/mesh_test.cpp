#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/fake.h"
#include "deepspeed/comm/functions.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Ranks = std::vector<int>;

TEST(Topology, LastAxisVariesFastest) {
  const Topology topology({{"pipe", 2}, {"data", 3}, {"model", 2}});
  EXPECT_EQ(topology.world_size(), 12);
  EXPECT_EQ(topology.coordinates(7), (Ranks{1, 0, 1}));
  EXPECT_EQ(topology.rank_at({1, 2, 0}), 10);
  for (int rank = 0; rank < 12; ++rank) EXPECT_EQ(topology.rank_at(topology.coordinates(rank)), rank);
}

TEST(Topology, GroupsDifferOnlyOnTheirAxes) {
  const Topology topology({{"pipe", 2}, {"data", 3}, {"model", 2}});
  EXPECT_EQ(topology.groups({"model"}),
            (std::vector<Ranks>{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}}));
  EXPECT_EQ(topology.groups({"data"}), (std::vector<Ranks>{{0, 2, 4}, {1, 3, 5}, {6, 8, 10}, {7, 9, 11}}));
  EXPECT_EQ(topology.groups({"pipe", "model"}),
            (std::vector<Ranks>{{0, 1, 6, 7}, {2, 3, 8, 9}, {4, 5, 10, 11}}));
  EXPECT_EQ(topology.group_of(9, {"pipe"}), (Ranks{3, 9}));
}

TEST(Topology, RefusesWrongAxesAndRanks) {
  const auto throws = [](const char* part) { return ThrowsMessage<UsageError>(HasSubstr(part)); };
  EXPECT_THAT([] { Topology({}); }, throws("no axes"));
  EXPECT_THAT([] { Topology({{"data", 2}, {"data", 2}}); }, throws("'data' appears twice"));
  EXPECT_THAT([] { Topology({{"data", 0}}); }, throws("of size 0"));
  const Topology topology({{"pipe", 2}, {"data", 2}});
  EXPECT_THAT([&] { topology.axis_size("dta"); }, throws("no axis 'dta', expected one of 'pipe', 'data'"));
  EXPECT_THAT([&] { topology.coordinates(4); }, throws("the rank is 4"));
  EXPECT_THAT([&] { topology.rank_at({0, 2}); }, throws("axis 'data' is 2"));
  EXPECT_THAT([&] { topology.rank_at({0}); }, throws("1 coordinates, expected one for each of 2 axes"));
}

TEST(Mesh, ReducesAlongItsAxes) {
  testing::run_ranks(4, [](World& world) {
    const Mesh mesh(world, {{"pipe", 2}, {"data", 2}});
    EXPECT_EQ(mesh.group("data").all_reduce_scalar(1 << world.rank()), world.rank() < 2 ? 3 : 12);
    EXPECT_EQ(mesh.group("pipe").all_reduce_scalar(1 << world.rank()), world.rank() % 2 == 0 ? 5 : 10);
    EXPECT_EQ(mesh.group("data").rank(), mesh.coordinate("data"));
    EXPECT_EQ(mesh.new_group({"pipe", "data"}).size(), 4);
    EXPECT_EQ(mesh.group("pipe").global_ranks(), (Ranks{world.rank() % 2, world.rank() % 2 + 2}));
  });
}

TEST(Mesh, RefusesAxesThatDoNotFillTheWorld) {
  EXPECT_THAT(
      [] {
        Mesh(make_fake_world(6), {{"pipe", 2}, {"data", 2}});
      },
      ThrowsMessage<UsageError>(HasSubstr("pipe 2 x data 2 make 4 ranks, expected the 6 of the world")));
}

TEST(Group, KeepsTheOrderGivenAndIsEmptyForOthers) {
  testing::run_ranks(3, [](World& world) {
    const auto group = world.new_group({2, 0}, "pair");
    const auto alone = world.new_group({1}, "alone");
    EXPECT_EQ(static_cast<bool>(group), world.rank() != 1);
    EXPECT_EQ(static_cast<bool>(alone), world.rank() == 1);
    if (group) {
      EXPECT_EQ(group.all_gather_text(std::to_string(world.rank())), (std::vector<std::string>{"2", "0"}));
      EXPECT_EQ(group.broadcast_text(std::to_string(world.rank()), 0), "2");
    } else {
      EXPECT_ERROR(UsageError, group.rank(), "this rank is not a member of it");
      EXPECT_EQ(alone.all_reduce_scalar(5), 5);
    }
    EXPECT_ERROR(UsageError, world.new_group({0, 3}, "wrong"), "'wrong' names rank 3, expected 0 to 2");
    EXPECT_ERROR(UsageError, world.new_group({0, 0}, "wrong"), "'wrong' names rank 0 twice");
  });
}

}  // namespace
}  // namespace deepspeed::comm
