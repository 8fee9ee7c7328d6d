// Threads independently make and release groups of all ranks.
#include "deepspeed/comm/making/own_groups.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/init.h"

#include "tests/support/error_of.h"
#include "tests/support/join_world.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::join_world;
using testing::run_ranks;
using namespace std::chrono_literals;

int64_t number_of(OwnGroups& groups, const std::string& name, const std::string& purpose,
                  const std::weak_ptr<void>& lifetime) {
  OwnGroups::Making making(groups, name, purpose);
  making.done(lifetime);
  return making.number();
}

std::string refusal(OwnGroups& groups, const std::string& name, const std::string& purpose) {
  return std::async(std::launch::async,
                    [&] { return error_of<UsageError>([&] { number_of(groups, name, purpose, {}); }); })
      .get();
}

TEST(OwnGroups, CountByName) {
  OwnGroups groups;
  const auto alive = std::make_shared<int>();
  EXPECT_EQ(number_of(groups, "a", "x", alive), 1);
  EXPECT_EQ(number_of(groups, "a", "x", alive), 2);
  EXPECT_EQ(number_of(groups, "b", "x", alive), 1);
  EXPECT_EQ(number_of(groups, "a", "y", alive), 3);
}

TEST(OwnGroups, AreRefusedWhereAnotherThreadMakesOneOfTheName) {
  OwnGroups groups;
  const OwnGroups::Making making(groups, "a", "x");
  EXPECT_THAT(refusal(groups, "a", "y"), AllOf(HasSubstr("'a'"), HasSubstr("at the same time"),
                                               HasSubstr("a name of its own"), HasSubstr("engine_name")));
  EXPECT_EQ(refusal(groups, "b", "x"), "no error");
}

TEST(OwnGroups, AreRefusedWhereRanksCouldTakeOneForTheOther) {
  OwnGroups groups;
  auto alive = std::make_shared<int>();
  number_of(groups, "a", "x", alive);
  EXPECT_THAT(refusal(groups, "a", "x"), HasSubstr("lives still"));
  EXPECT_EQ(refusal(groups, "a", "y"), "no error");
  alive.reset();
  EXPECT_EQ(refusal(groups, "a", "x"), "no error");
}

// Each rank begins with a different group, and a call ends when the other rank has made it too.
TEST(OwnGroups, AreMadeInAnyOrderByThreadsThatNameThem) {
  run_ranks(2, [](World& world) {
    const auto use = [&](const std::string& name, double value, bool is_late) {
      if (is_late) std::this_thread::sleep_for(500ms);
      const auto group = world.own_group(name);
      EXPECT_EQ(group.name(), name);
      for (int step = 0; step < 10; ++step) EXPECT_EQ(group.all_reduce_scalar(value), 2 * value);
    };
    auto beside = std::async(std::launch::async, [&] { use("left", 3, world.rank() == 0); });
    use("right", 5, world.rank() == 1);
    beside.get();
  });
}

TEST(OwnGroups, OfNamesThatDifferBetweenRanksAreNamed) {
  const auto outcomes = testing::fork_ranks(2, [](int rank) {
    const auto world = join_world(2s);
    const std::string text = error_of<CommError>([&] { world.own_group(rank == 0 ? "actor" : "critic"); });
    std::this_thread::sleep_for(1s);  // the other rank checks this one's store
    return text;
  });
  EXPECT_THAT(outcomes[0].value, AllOf(HasSubstr("'own/actor/1'"), HasSubstr("rank 1 makes 'own/critic/1'")));
  EXPECT_THAT(outcomes[1].value, AllOf(HasSubstr("'own/critic/1'"), HasSubstr("rank 0 makes 'own/actor/1'")));
}

std::ptrdiff_t num_entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

// Returns the number of threads and open files of the process.
std::ptrdiff_t num_resources() { return num_entries("/proc/self/task") + num_entries("/proc/self/fd"); }

TEST(OwnGroups, GiveTheirThreadsAndConnectionsBack) {
  run_ranks(2, [](World& world) {
    world.own_group("warm").barrier();
    world.group().barrier();
    std::this_thread::sleep_for(2s);
    const auto before = num_resources();
    for (int turn = 0; turn < 10; ++turn) {
      const auto group = world.own_group("turn");
      EXPECT_EQ(group.all_reduce_scalar(1), 2);
      EXPECT_GT(num_resources(), before);
    }
    const auto end = std::chrono::steady_clock::now() + 1min;
    while (num_resources() > before && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(50ms);
    }
    EXPECT_LE(num_resources(), before);
    world.group().barrier();
  });
}

// A rank may be done with a group while another still reads its data.
TEST(OwnGroups, LoseNothingWhereOneRankLetsGoSooner) {
  run_ranks(2, [](World& world) {
    const auto own = at::full({1 << 20}, world.rank() + 1.0);
    for (int turn = 0; turn < 10; ++turn) {
      auto group = world.own_group("turn");
      auto all = at::zeros({2 << 20});
      if (turn % 2 == world.rank()) std::this_thread::sleep_for(20ms);
      group.all_gather(all, own);
      group = {};
      EXPECT_EQ(all.sum().item<double>(), 3.0 * (1 << 20));
    }
  });
}

TEST(OwnGroups, MayOutliveTheWorld) {
  run_ranks(2, [](World&) {
    auto world = comm::world();
    auto group = world.own_group("late");
    EXPECT_EQ(group.all_reduce_scalar(1), 2);
    world.shutdown();
    group = {};
  });
}

// Without a check in advance, a thread of gloo would end the process.
TEST(Groups, ThatFindNoRoomForTheirConnectionsNameTheLimit) {
  const auto outcomes = testing::fork_ranks(2, [](int) {
    const rlimit few{24, 24};
    ::setrlimit(RLIMIT_NOFILE, &few);
    return error_of<Error>([] { join_world(); });
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.signal, 0);
    EXPECT_NE(outcome.value, "no error");
  }
  EXPECT_THAT(outcomes[0].value,
              AllOf(HasSubstr("open files"), HasSubstr("may have 24 open"), HasSubstr("ulimit -n")));
}

}  // namespace
}  // namespace deepspeed::comm
