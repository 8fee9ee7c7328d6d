// Ranks that call different collectives get an error within seconds that names two of them and their calls.
#include <future>
#include <thread>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/group/held_values.h"
#include "deepspeed/comm/init.h"

#include "tests/support/error_of.h"
#include "tests/support/join_world.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using ::testing::AllOf;
using testing::error_of;
using testing::fork_ranks;
using ::testing::HasSubstr;
using testing::join_world;
using ::testing::MatchesRegex;
using namespace std::chrono_literals;

// Runs `program` on two ranks. Both must fail before any timeout, with a text that contains `expected`.
void expect_on_both(const std::function<void(World&, int)>& program,
                    const std::vector<std::string>& expected) {
  const auto outcomes = fork_ranks(2,
                                   [&](int rank) {
                                     auto world = join_world();
                                     world.group().barrier();
                                     return error_of<CommError>([&] { program(world, rank); });
                                   },
                                   {.end_together = true});
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome.ok()) << outcome.signal;
    for (const auto& part : expected) EXPECT_THAT(outcome.value, HasSubstr(part));
  }
}

TEST(Divergence, OfSizesIsNamed) {
  expect_on_both([](World& world, int rank) { world.group().all_reduce(at::ones({rank == 0 ? 10 : 12})); },
                 {"the ranks diverged in group 'world'", "rank 0 called all_reduce #2 (sum of 10 Float)",
                  "rank 1 called all_reduce #2 (sum of 12 Float)"});
}

TEST(Divergence, OfCollectivesIsNamed) {
  expect_on_both(
      [](World& world, int rank) {
        const auto tensor = at::ones({8});
        if (rank == 0) world.group().broadcast(tensor, 0);
        if (rank == 1) world.group().all_reduce(tensor, ReduceOp::kMax);
      },
      {"rank 0 called broadcast #2 (8 Float, root 0)", "rank 1 called all_reduce #2 (max of 8 Float)"});
}

TEST(Divergence, OfARankThatTakesAnotherBranchIsNamed) {
  expect_on_both(
      [](World& world, int rank) {
        const auto tensor = at::ones({1 << 18});
        for (int step = 0; step < 20; ++step) {
          world.group().all_reduce(tensor);
          if (rank == 1 && step == 7) world.group().all_gather_scalar(1.0);
        }
      },
      {"rank 0 called all_reduce #10 (sum of 262144 Float)", "rank 1 called all_gather #10 (1 Double)"});
}

TEST(Divergence, OfARankThatEndsSoonerIsNamed) {
  expect_on_both(
      [](World& world, int rank) {
        const auto tensor = at::ones({100});
        for (int step = 0; step < (rank == 0 ? 5 : 4); ++step) world.group().all_reduce(tensor);
        world.shutdown();
      },
      {"rank 0 called all_reduce #6 (sum of 100 Float)", "rank 1 called barrier #6"});
}

TEST(Divergence, OfARankThatSkipsAStepWithTheSameShapesIsNamed) {
  expect_on_both(
      [](World& world, int rank) {
        const auto step = std::make_shared<std::atomic<int64_t>>(0);
        const auto group = world.group().at_position(step);
        const auto tensor = at::ones({64});
        for (; *step < 6; ++*step) {
          if (rank == 1 && *step == 3) continue;
          group.all_reduce(tensor);
        }
      },
      {"rank 0 called all_reduce #5 (sum of 64 Float, micro step 3)",
       "rank 1 called all_reduce #5 (sum of 64 Float, micro step 4)"});
}

TEST(Divergence, OfWhatTheRanksHoldIsNamed) {
  expect_on_both(
      [](World& world, int rank) {
        const auto values = std::make_shared<CurrentValues>();
        const auto group = world.group().holding(values);
        const auto tensor = at::ones({64});
        for (int step = 0; step < 6; ++step) {
          const bool is_other = rank == 1 && step >= 3;
          values->set({is_other ? uint64_t{7} : uint64_t{5}, [=] {
                         return NamedTexts{{"lr", is_other ? "0.9" : "0.1"}, {"eps", "1"}};
                       }});
          group.all_reduce(tensor);
        }
      },
      {"in all_reduce #5 (sum of 64 Float) lr is 0.1 on rank 0 and 0.9 on rank 1"});
}

TEST(Divergence, OfTheOrderOfTwoGroupsIsNamed) {
  expect_on_both(
      [](World& world, int rank) {
        const auto other = world.new_group({0, 1}, "other");
        const auto tensor = at::ones({4});
        (rank == 0 ? world.group() : other).all_reduce(tensor);
        (rank == 0 ? other : world.group()).all_reduce(tensor);
      },
      {"wait for each other in different groups",
       "rank 0 waits in all_reduce #2 (sum of 4 Float) of group 'world'",
       "rank 1 waits in all_reduce #1 (sum of 4 Float) of group 'other'"});
}

TEST(Divergence, OfARankThatRaisesAndLeavesIsNamedByTheOther) {
  for (const bool by_exit : {false, true}) {
    const auto outcomes = fork_ranks(2, [&](int rank) {
      auto world = join_world();
      const auto tensor = at::ones({16});
      world.group().all_reduce(tensor);
      if (rank == 1) {
        std::this_thread::sleep_for(100ms);
        if (by_exit) std::exit(3);
        world = {};
        destroy_process_group();
        std::this_thread::sleep_for(2s);
        return std::string("left");
      }
      return error_of<CommError>([&] { world.group().all_gather_scalar(2.0); });
    });
    EXPECT_THAT(outcomes[0].value, AllOf(HasSubstr("rank 0 called all_gather #2 (1 Double)"),
                                         HasSubstr("rank 1 left after all_reduce #1 (sum of 16 Float)")));
  }
}

/// Runs both at the same time and rethrows what one throws.
void in_two_threads(const std::function<void()>& one, const std::function<void()>& other) {
  auto beside = std::async(std::launch::async, one);
  other();
  beside.get();
}

// Each rank is late in another group, with the thread that should call there.
TEST(Divergence, IsNotSeenInThreadsThatAreOnlySlow) {
  const auto outcomes = fork_ranks(2, [](int rank) {
    auto world = join_world();
    const std::vector<ProcessGroup> groups{world.own_group("left"), world.own_group("right")};
    const auto run = [&](int index) {
      const auto tensor = at::ones({3});
      for (int step = 0; step < 20; ++step) groups[index].all_reduce(tensor);
      if (index == rank) std::this_thread::sleep_for(3500ms);
      groups[index].all_reduce(tensor);
    };
    in_two_threads([&] { run(0); }, [&] { run(1); });
    world.shutdown();
    return std::string("done");
  });
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome.ok()) << (outcome.failures.empty() ? "" : outcome.failures.front());
    EXPECT_EQ(outcome.value, "done");
  }
}

// A failure in the left group ends only that group, whatever else is waiting.
TEST(Divergence, OfOneGroupLeavesThoseOfOtherThreadsAlone) {
  const auto outcomes = fork_ranks(2, [](int rank) {
    auto world = join_world();
    const auto left = world.own_group("left"), right = world.own_group("right");
    std::string text;
    const auto diverge = [&] {
      for (int step = 0; step < 20; ++step) left.barrier();
      text = error_of<CommError>([&] { left.all_reduce(at::ones({rank == 0 ? 10 : 12})); });
    };
    const auto wait_long = [&] {
      const auto tensor = at::ones({3});
      for (int step = 0; step < 20; ++step) right.all_reduce(tensor);
      for (const int late : {0, 1}) {
        if (rank == late) std::this_thread::sleep_for(4s);
        right.all_reduce(tensor);
      }
    };
    in_two_threads(diverge, wait_long);
    world.shutdown();
    return text;
  });
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome.ok()) << (outcome.failures.empty() ? "" : outcome.failures.front());
    EXPECT_THAT(outcome.value, HasSubstr("the ranks diverged in group 'left'"));
  }
}

TEST(Divergence, OfARankThatLetGoOfItsGroupIsNamed) {
  expect_on_both(
      [](World& world, int rank) {
        auto group = world.own_group("short");
        group.all_reduce(at::ones({5}));
        if (rank == 1) group = {};
        if (rank == 1) world.group().all_reduce(at::ones({5}));
        group.all_reduce(at::ones({6}));
      },
      {"the ranks diverged in group 'short'", "rank 0 called all_reduce #2 (sum of 6 Float)",
       "rank 1 left after all_reduce #1 (sum of 5 Float)"});
}

TEST(Divergence, OfARankWhoseProgramEndsBesideItsGroupsIsNamed) {
  expect_on_both(
      [](World& world, int rank) {
        // It is not destroyed, like that of an engine whose error is reported.
        const auto& group = *new ProcessGroup(world.own_group("data"));
        for (int step = 0; step < (rank == 0 ? 5 : 4); ++step) group.all_reduce(at::ones({7}));
        world.shutdown();
      },
      {"the ranks diverged in group 'data'", "rank 0 called all_reduce #5 (sum of 7 Float)",
       "rank 1 left after all_reduce #4"});
}

TEST(Divergence, IsNotSeenInARankThatIsOnlySlow) {
  const auto outcomes = fork_ranks(2, [](int rank) {
    auto world = join_world();
    const auto tensor = at::ones({3});
    for (int step = 0; step < 3; ++step) {
      if (rank == step % 2) std::this_thread::sleep_for(2500ms);
      world.group().all_reduce(tensor);
    }
    auto other = world.new_group({0, 1}, "other");
    // In progress in one group while this rank is blocked in another.
    auto work = rank == 0 ? other.start_all_reduce(tensor) : Work();
    if (rank == 1) std::this_thread::sleep_for(2500ms);
    world.group().barrier();
    if (rank == 1) work = other.start_all_reduce(tensor);
    work.wait();
    world.shutdown();
    return std::to_string(tensor[0].item<int>());
  });
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome.ok());
    EXPECT_EQ(outcome.value, "16");
  }
}

}  // namespace
}  // namespace deepspeed::comm
