// Groups made by others, such as Python's torch.distributed, become worlds of this library.
#include "deepspeed/comm/adopt.h"

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/functions.h"
#include "deepspeed/comm/watch/call_subject.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/script_group.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::comm {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::error_of;
using testing::free_port;
using ::testing::HasSubstr;
using testing::make_script_group;
using testing::num_script_calls;
using testing::run_scripts;
using testing::script_sum;
using testing::ScriptGroup;
using testing::TemporaryFolder;
using namespace std::chrono_literals;

GivenGroup given_by(const ScriptGroup& script) {
  return {.group = script.group, .store = script.store, .timeout = 60s};
}

double sum_over(const ProcessGroup& group, double value) { return group.all_reduce_scalar(value); }

// Lets a rank with its own error wait for the other rank's error.
void wait_for_file(const std::filesystem::path& path) {
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(10ms);
}

TEST(Adopt, ShowsTheGivenGroupAndSendsNothingOverIt) {
  const TemporaryFolder folder;
  run_scripts(2, [&](int rank) {
    const auto script = make_script_group(rank, 2, folder / "store");
    const World world = adopt(given_by(script));
    EXPECT_EQ(world.rank(), rank);
    EXPECT_EQ(world.size(), 2);
    EXPECT_EQ(world.local_rank(), rank);
    EXPECT_EQ(world.local_size(), 2);
    EXPECT_EQ(world.group().backend(), "gloo");
    EXPECT_EQ(world.group().c10d_group(), script.group);
    EXPECT_EQ(sum_over(world.group(), rank + 1), 3);
    const auto own = world.own_group("engine");
    EXPECT_NE(own.c10d_group(), script.group);
    EXPECT_EQ(sum_over(own, rank + 1), 3);
    const auto half = world.new_group({1}, "half");
    EXPECT_EQ(static_cast<bool>(half), rank == 1);
    EXPECT_EQ(num_script_calls(), 0);
    EXPECT_FALSE(is_initialized());
    return std::string();
  });
}

TEST(Adopt, TakesTheStoreOfTheGroupAndTheLocalPlaceThatIsTold) {
  const TemporaryFolder folder;
  run_scripts(2, [&](int rank) {
    const auto script = make_script_group(rank, 2, folder / "store");
    const World world = adopt({.group = script.group, .local_rank = 0, .local_size = 1, .timeout = 60s});
    EXPECT_EQ(world.local_rank(), 0);
    EXPECT_EQ(world.local_size(), 1);
    EXPECT_EQ(world.group().timeout(), 60s);
    EXPECT_EQ(sum_over(world.group(), rank + 1), 3);
    return std::string();
  });
}

TEST(Adopt, MakesTheWorldThatCallsWithoutAGroupMean) {
  const TemporaryFolder folder;
  run_scripts(2, [&](int rank) {
    const auto script = make_script_group(rank, 2, folder / "store");
    const World adopted = adopt_as_world(given_by(script));
    EXPECT_TRUE(is_initialized());
    for (const World& same : {world(), init_distributed(), adopt_as_world(given_by(script))})
      EXPECT_EQ(&same.group(), &adopted.group());
    auto tensor = at::full({3}, rank + 1.0);
    all_reduce(tensor);
    EXPECT_TRUE(at::equal(tensor, at::full({3}, 3.0)));
    EXPECT_EQ(get_world_group().c10d_group(), script.group);
    return std::string();
  });
}

TEST(Adopt, LeavesTheGivenGroupToItsOwner) {
  const TemporaryFolder folder;
  run_scripts(2, [&](int rank) {
    const auto script = make_script_group(rank, 2, folder / "store");
    for (int round = 1; round <= 2; ++round) {
      World world = adopt(given_by(script));
      EXPECT_EQ(sum_over(world.group(), 1), 2);
      world = {};
      EXPECT_EQ(script_sum(*script.group, rank + round), 2 * round + 1);
    }
    adopt_as_world(given_by(script)).shutdown();
    destroy_process_group();
    EXPECT_EQ(script_sum(*script.group, rank), 1);
    EXPECT_EQ(num_script_calls(), 3);
    return std::string();
  });
}

TEST(Adopt, GoesOnWhileTheScriptUsesItsGroupInAnotherOrder) {
  const TemporaryFolder folder;
  run_scripts(2, [&](int rank) {
    const auto script = make_script_group(rank, 2, folder / "store");
    const World world = adopt(given_by(script));
    std::thread user([&] {
      for (int i = 0; i < 100; ++i) EXPECT_EQ(script_sum(*script.group, i + rank), 2 * i + 1);
    });
    for (int i = 0; i < 100; ++i) EXPECT_EQ(sum_over(world.group(), i - rank), 2 * i - 1);
    user.join();
    // One rank's script waits in its group while the other rank is in ours.
    if (rank == 0) user = std::thread([&] { EXPECT_EQ(script_sum(*script.group, 1), 2); });
    EXPECT_EQ(sum_over(world.group(), 5), 10);
    if (rank == 0) {
      user.join();
    } else {
      EXPECT_EQ(script_sum(*script.group, 1), 2);
    }
    return std::string();
  });
}

TEST(Adopt, FollowsGroupsThatAreDestroyedAndMadeAnew) {
  std::vector<int> ports;
  for (int round = 0; round < 4; ++round) ports.push_back(free_port());
  run_scripts(2, [&](int rank) {
    for (int round = 0; round < 4; ++round) {
      const auto script = make_script_group(rank, 2, ports[round]);
      const World adopted = adopt_as_world(given_by(script));
      EXPECT_EQ(adopted.group().c10d_group(), script.group);
      EXPECT_EQ(sum_over(world().group(), rank + round), 2 * round + 1);
      // A script may say so, or leave it to the end of its group.
      if (round % 2 == 1) destroy_process_group();
      script_sum(*script.group, 0);  // rank 0 ends the store
    }
    EXPECT_FALSE(is_initialized());
    EXPECT_ERROR(UsageError, world(), "call init_distributed() first");
    return std::string();
  });
}

TEST(Adopt, KeepsNeitherTheGroupNorTheStore) {
  run_scripts(1, [](int) {
    c10d::TCPStoreOptions options;
    options.port = 0;  // any
    options.isServer = true;
    options.waitWorkers = false;
    auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    const auto port = store->getPort();
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1);
    group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO,
                      make_script_group(0, 1, store, "alone")->getBackend(at::kCPU));
    const World world = adopt({.group = group, .store = store});
    EXPECT_EQ(world.group().c10d_group(), group);
    EXPECT_EQ(sum_over(world.group(), 3), 3);
    group = nullptr;
    store = nullptr;
    EXPECT_FALSE(world.group().c10d_group());
    options.port = port;  // it is free again
    EXPECT_NO_THROW(c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options));
    return std::string();
  });
}

TEST(Adopt, EndsWhatLivesOnWhereTheGroupIsDestroyed) {
  const TemporaryFolder folder;
  run_scripts(2, [&](int rank) {
    auto script = make_script_group(rank, 2, folder / "store");
    const World world = adopt(given_by(script));
    const auto engine = world.own_group("engine");
    EXPECT_EQ(sum_over(engine, 1), 2);
    script_sum(*script.group, 0);
    script = {};
    EXPECT_ERROR(CommError, sum_over(engine, 1), "all_reduce of group 'engine' cannot run",
                 "destroyed the process group that its world was adopted from");
    EXPECT_ERROR(CommError, world.own_group("late"), "the group 'late' cannot be made",
                 "destroyed the process group");
    return std::string();
  });
}

TEST(Adopt, EndsWhatLivesOnWhereTheProcessLeavesOrAdoptsAnother) {
  for (const bool adopts : {false, true}) {
    const TemporaryFolder folder;
    run_scripts(2, [&](int rank) {
      const auto script = make_script_group(rank, 2, folder / "store");
      const auto next = make_script_group(rank, 2, folder / "next");
      const auto engine = adopt_as_world(given_by(script)).own_group("engine");
      EXPECT_EQ(sum_over(engine, 1), 2);
      if (adopts) {
        EXPECT_EQ(sum_over(adopt_as_world(given_by(next)).group(), rank), 1);
      } else {
        destroy_process_group();
      }
      EXPECT_THAT(error_of<CommError>([&] { sum_over(engine, 1); }),
                  AllOf(HasSubstr("group 'engine' cannot run"),
                        HasSubstr(adopts ? "adopted another process group as its world"
                                         : "left the world that it had adopted")));
      EXPECT_EQ(script_sum(*script.group, rank), 1);
      return std::string();
    });
  }
}

TEST(Adopt, NamesARankThatDestroyedItsGroupToThoseThatWait) {
  const TemporaryFolder folder;
  const auto begin = std::chrono::steady_clock::now();
  run_scripts(2, [&](int rank) {
    auto script = make_script_group(rank, 2, folder / "store");
    const World world = adopt(given_by(script));
    const auto engine = world.own_group("engine");
    EXPECT_EQ(sum_over(engine, 1), 2);
    if (rank == 0) {
      script = {};
      wait_for_file(folder / "done");
      return std::string();
    }
    EXPECT_ERROR(CommError, sum_over(engine, 1), "all_reduce of group 'engine' failed on rank 1 of 2",
                 "rank 0 destroyed the process group");
    folder.write("done", "");
    return std::string();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s) << "the groups' timeout";
}

TEST(Adopt, NamesARankThatTookTheStoreWithIt) {
  const TemporaryFolder folder;
  const int port = free_port();
  run_scripts(2, [&](int rank) {
    auto script = make_script_group(rank, 2, port);
    const World world = adopt(given_by(script));
    const auto engine = world.own_group("engine");
    EXPECT_EQ(sum_over(engine, 1), 2);
    script_sum(*script.group, 0);
    if (rank == 0) {
      script = {};
      wait_for_file(folder / "done");
      return std::string();
    }
    // Whether the rank could report its reason depends on the order of events.
    EXPECT_THAT(error_of<CommError>([&] { sum_over(engine, 1); }),
                AllOf(HasSubstr("all_reduce of group 'engine' failed on rank 1 of 2"),
                      AnyOf(HasSubstr("no sign of life from rank 0"),
                            HasSubstr("rank 0 destroyed the process group"))));
    script = {};
    EXPECT_ERROR(CommError, sum_over(world.group(), 1), "group 'world' cannot run");
    folder.write("done", "");
    return std::string();
  });
}

TEST(Adopt, NamesARankThatLeavesOrCallsSomethingElse) {
  for (const bool leaves : {false, true}) {
    const TemporaryFolder folder;
    const auto errors = run_scripts(2, [&](int rank) {
      const auto script = make_script_group(rank, 2, folder / "store");
      World world = adopt(given_by(script));
      auto engine = world.own_group("engine");
      EXPECT_EQ(sum_over(engine, 1), 2);
      if (leaves && rank == 0) {
        engine = {};
        world = {};
        wait_for_file(folder / "done");
        return std::string();
      }
      const CallSubject subject(rank == 0 ? "parameter 'a'" : "parameter 'b'");
      auto text = error_of<CommError>([&] { sum_over(engine, 1); });
      folder.write("done", "");
      return text;
    });
    EXPECT_THAT(errors[1], AllOf(HasSubstr("all_reduce"), HasSubstr("group 'engine'"), HasSubstr("rank 0"),
                                 HasSubstr("parameter 'b'")));
    EXPECT_EQ(errors[0].find("parameter 'a'") != std::string::npos, !leaves) << errors[0];
  }
}

TEST(AdoptGroup, StandsForASubset) {
  const TemporaryFolder folder;
  run_scripts(3, [&](int rank) {
    const auto script = make_script_group(rank, 3, folder / "store");
    const World world = adopt(given_by(script));
    const std::vector<int> ranks = {2, 0};
    if (rank == 1) {  // does not take part
      EXPECT_EQ(sum_over(world.group(), 1), 3);
      return std::string();
    }
    const int place = rank == 2 ? 0 : 1;
    auto given = make_script_group(place, 2, script.store, "expert");
    auto again = make_script_group(place, 2, script.store, "experts of the next layer");
    auto group = world.adopt_group(given, ranks);
    const auto next = world.adopt_group(again, ranks);
    EXPECT_EQ(group.rank(), place);
    EXPECT_EQ(group.global_ranks(), ranks);
    EXPECT_EQ(group.backend(), "gloo");
    EXPECT_EQ(group.c10d_group(), given);
    EXPECT_EQ(next.c10d_group(), again);
    auto tensor = at::full({2}, static_cast<double>(rank));
    broadcast(tensor, /*src=*/2, group);
    EXPECT_TRUE(at::equal(tensor, at::full({2}, 2.0)));
    EXPECT_EQ(sum_over(next, rank), 2);
    EXPECT_EQ(sum_over(world.adopt_group(given, ranks), rank), 2);
    EXPECT_EQ(num_script_calls(), 0);
    group = {};
    EXPECT_EQ(script_sum(*given, rank), 2);
    EXPECT_EQ(sum_over(world.group(), 1), 3);
    return std::string();
  });
}

TEST(AdoptGroup, RefusesRanksThatAreNotTheGroups) {
  const TemporaryFolder folder;
  run_scripts(2, [&](int rank) {
    const auto script = make_script_group(rank, 2, folder / "store");
    const World world = adopt(given_by(script));
    EXPECT_ERROR(UsageError, world.adopt_group(nullptr, {0, 1}), "the group to adopt is null");
    EXPECT_ERROR(UsageError, world.adopt_group(script.group, {rank}), "the group 'adopted 0' has 2 ranks",
                 "the 1 of global_ranks");
    EXPECT_ERROR(UsageError, world.adopt_group(script.group, {1, 0}),
                 "this one is its rank " + std::to_string(rank), "is number " + std::to_string(1 - rank));
    EXPECT_ERROR(UsageError, world.adopt_group(script.group, {0, 2}), "names rank 2, expected 0 to 1");
    return std::string();
  });
}

// Is a backend of torch that the library does not support.
class StrangeBackend : public c10d::Backend {
 public:
  using Backend::Backend;
  const std::string getBackendName() const override { return "ucc"; }
};

TEST(Adopt, RefusesWhatItCannotAdopt) {
  run_scripts(1, [](int) {
    EXPECT_ERROR(UsageError, adopt({}), "the group to adopt is null");
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const auto strange = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1);
    EXPECT_ERROR(UsageError, adopt({.group = strange}), "has no backend, expected 'gloo' or 'nccl'");
    strange->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::UCC,
                        c10::make_intrusive<StrangeBackend>(0, 1));
    EXPECT_ERROR(UsageError, adopt({.group = strange}), "has the backend 'ucc', expected 'gloo' or 'nccl'");

    const auto group = make_script_group(0, 1, store, "0");
    EXPECT_ERROR(UsageError, adopt({.group = group, .local_rank = 1, .local_size = 1}), "local_rank is 1");
    EXPECT_ERROR(UsageError, adopt({.group = group, .local_rank = 0}), "local_size -1");
    EXPECT_ERROR(UsageError, adopt({.group = group, .local_rank = 0, .local_size = 2}), "at most the 1 of");
    const auto without = c10::make_intrusive<c10d::ProcessGroup>(0, 1);
    without->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO, group->getBackend(at::kCPU));
    EXPECT_ERROR(UsageError, adopt({.group = without}), "the store of the group to adopt is null");

    init_distributed({.verbose = false});
    EXPECT_ERROR(UsageError, adopt_as_world({.group = group}),
                 "init_distributed() has made a world of 1 ranks already");
    EXPECT_EQ(sum_over(adopt({.group = group}).group(), 2), 2);
    destroy_process_group();
    EXPECT_EQ(adopt_as_world({.group = group}).group().c10d_group(), group);
    destroy_process_group();
    return std::string();
  });
}

TEST(Adopt, NamesARankThatDoesNotAdopt) {
  const TemporaryFolder folder;
  run_scripts(2, [&](int rank) {
    const auto script = make_script_group(rank, 2, folder / "store");
    if (rank == 1) {
      wait_for_file(folder / "done");
      return std::string();
    }
    EXPECT_ERROR(CommError, adopt({.group = script.group, .timeout = 500ms}),
                 "could not join the job at the store of the group to adopt", "no sign of rank(s) 1");
    folder.write("done", "");
    return std::string();
  });
}

}  // namespace
}  // namespace deepspeed::comm
