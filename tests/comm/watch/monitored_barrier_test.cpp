// Ranks miss a monitored barrier, come late, or skip one.
#include <thread>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/init.h"

#include "tests/support/error_of.h"
#include "tests/support/join_world.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using testing::error_of;
using testing::fork_ranks;
using ::testing::HasSubstr;
using testing::join_world;
using namespace std::chrono_literals;

std::string missed(World& world, std::chrono::milliseconds timeout, bool all = true) {
  return error_of<CommError>([&] { world.group().monitored_barrier(timeout, all); });
}

TEST(MonitoredBarrier, NamesTheRanksThatDoNotComeAndLeavesTheGroupUsable) {
  const auto outcomes = fork_ranks(4, [](int rank) {
    auto world = join_world();
    world.group().monitored_barrier();
    std::string texts;
    for (const bool all : {true, false}) {
      world.group().barrier();
      const bool comes = all ? rank % 2 == 0 : rank == 3;
      if (comes) texts += error_of<CommError>([&] { world.group().monitored_barrier(500ms, all); }) + ";";
      world.group().barrier();
    }
    const auto tensor = at::ones({2});
    world.group().all_reduce(tensor);
    return texts + std::to_string(tensor[0].item<int>());
  });
  for (const int rank : {0, 2}) {
    EXPECT_THAT(outcomes[rank].value,
                HasSubstr("monitored_barrier of group 'world': rank(s) 1, 3 did not come "
                          "within 0.5 s;4"));
  }
  EXPECT_EQ(outcomes[1].value, "4");
}

TEST(MonitoredBarrier, NamesAnyOfManyRanks) {
  const std::vector<std::vector<int>> absent{{0}, {4}, {1, 3}, {2, 3, 4}, {0, 1, 2, 3}};
  const auto outcomes = fork_ranks(5, [&](int rank) {
    auto world = join_world();
    std::string texts;
    for (const auto& missing : absent) {
      world.group().barrier();
      if (std::find(missing.begin(), missing.end(), rank) == missing.end()) texts += missed(world, 500ms);
      texts += "\n";
    }
    world.group().barrier();
    world.shutdown();
    return texts;
  });
  for (int rank = 0; rank < 5; ++rank) {
    std::istringstream texts(outcomes[rank].value);
    for (const auto& missing : absent) {
      std::string text, names;
      std::getline(texts, text);
      for (const int other : missing) names += (names.empty() ? "" : ", ") + std::to_string(other);
      if (std::find(missing.begin(), missing.end(), rank) != missing.end()) {
        EXPECT_EQ(text, "") << rank;
      } else {
        EXPECT_THAT(text, HasSubstr("rank(s) " + names + " did not come within 0.5 s")) << rank;
      }
    }
  }
}

TEST(MonitoredBarrier, MeetsARankAgainThatLeftOneOutForGood) {
  for (const int skipping : {0, 2}) {
    const auto outcomes = fork_ranks(3, [&](int rank) {
      auto world = join_world();
      std::string texts = rank == skipping ? "left out" : missed(world, 300ms);
      for (int later = 0; later < 3; ++later) {
        world.group().barrier();
        world.group().monitored_barrier(20s);  // throws if the ranks count differently
        world.group().monitored_barrier(20s);
      }
      world.shutdown();
      return texts;
    });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(outcomes[rank].ok()) << rank;
      EXPECT_THAT(outcomes[rank].value,
                  HasSubstr(rank == skipping ? "left out" : "rank(s) " + std::to_string(skipping)));
    }
  }
}

TEST(MonitoredBarrier, TellsARankThatComesLateSo) {
  for (const int late : {0, 1}) {
    const auto outcomes = fork_ranks(3, [&](int rank) {
      auto world = join_world();
      // If rank 0 is late, the others wait 2 s longer for its answer.
      if (rank == late) std::this_thread::sleep_for(4s);
      auto text = missed(world, 500ms);
      world.group().barrier();
      world.group().monitored_barrier();
      world.shutdown();
      return text;
    });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(outcomes[rank].ok());
      EXPECT_THAT(
          outcomes[rank].value,
          HasSubstr(rank == late ? "rank " + std::to_string(late) + " came after the others had given up"
                                 : "rank(s) " + std::to_string(late) + " did not come within 0.5 s"));
    }
  }
}

}  // namespace
}  // namespace deepspeed::comm
