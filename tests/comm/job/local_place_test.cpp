#include "deepspeed/comm/job/local_place.h"

#include <thread>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/env.h"

#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

TEST(LocalPlace, CountsTheRanksOfEachMachineInTheirOrder) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const std::vector<std::string> machines{"a", "b", "a", "a", "b"};
  std::vector<Job> jobs(machines.size());
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 5; ++rank) {
    jobs[rank].rank = rank;
    jobs[rank].world_size = 5;
    ranks.emplace_back([&, rank] { find_local_place(jobs[rank], *store, machines[rank]); });
  }
  for (auto& rank : ranks) rank.join();
  std::vector<std::pair<int, int>> places;
  for (const auto& job : jobs) places.emplace_back(job.local_rank, job.local_size);
  EXPECT_THAT(places, ::testing::ElementsAre(std::pair(0, 3), std::pair(0, 2), std::pair(1, 3),
                                             std::pair(2, 3), std::pair(1, 2)));
}

TEST(LocalPlace, IsFoundWhereNoLauncherTellsIt) {
  EXPECT_EQ(own_machine(), own_machine());
  const auto outcomes = testing::fork_ranks(3, [](int rank) {
    for (const char* name : {"LOCAL_SIZE", "LOCAL_WORLD_SIZE"}) env::set(name, std::nullopt);
    // The launcher's value takes precedence.
    env::set("LOCAL_RANK", rank == 1 ? std::optional<std::string>("7") : std::nullopt);
    auto world = init_distributed({.dist_backend = "gloo", .verbose = false});
    const auto place = std::to_string(world.local_rank()) + " of " + std::to_string(world.local_size());
    world.shutdown();
    return place;
  });
  EXPECT_EQ(outcomes[0].value, "0 of 3");
  EXPECT_EQ(outcomes[1].value, "7 of 1");
  EXPECT_EQ(outcomes[2].value, "2 of 3");
}

}  // namespace
}  // namespace deepspeed::comm
