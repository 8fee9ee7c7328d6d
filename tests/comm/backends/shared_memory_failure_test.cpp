// Checks what other ranks see when one that shares memory dies or calls something else.
#include <chrono>
#include <string>
#include <thread>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/init.h"

#include "tests/comm/backends/shared_memory_switch.h"
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
using namespace std::chrono_literals;

TEST(SharedMemoryFailure, OfARankThatIsKilledNamesItBeforeATimeout) {
  const SharedMemorySwitch on(true);
  for (const int dying : {0, 1, 2}) {
    for (const int64_t numel : {int64_t{3}, int64_t{1} << 20}) {
      const auto outcomes = fork_ranks(3, [&](int rank) -> std::string {
        auto world = join_world();
        const at::Tensor tensor = at::ones({numel});
        world.group().all_reduce(tensor);
        if (rank == dying) {
          std::thread([] {
            std::this_thread::sleep_for(100ms);
            ::kill(::getpid(), SIGKILL);
          }).detach();
        }
        return error_of<CommError>([&] {
          for (;;) world.group().all_reduce(tensor);
        });
      });
      const std::string name = "rank " + std::to_string(dying);
      for (int rank = 0; rank < 3; ++rank) {
        if (rank == dying) {
          EXPECT_EQ(outcomes[rank].signal, SIGKILL);
          continue;
        }
        EXPECT_TRUE(outcomes[rank].ok()) << rank << " signal " << outcomes[rank].signal;
        EXPECT_THAT(outcomes[rank].value, AllOf(HasSubstr("no sign of life from " + name),
                                                HasSubstr(name + " (process "), HasSubstr("died")));
      }
    }
  }
}

TEST(SharedMemoryFailure, OfARankThatIsKilledEndsMessages) {
  const SharedMemorySwitch on(true);
  const auto outcomes = fork_ranks(2, [](int rank) -> std::string {
    auto world = join_world(60s);
    world.group().barrier();
    if (rank == 1) ::kill(::getpid(), SIGKILL);
    return error_of<CommError>([&] { world.group().recv(at::zeros({4}), 1); });
  });
  EXPECT_THAT(outcomes[0].value,
              AllOf(HasSubstr("recv of group 'world'"), HasSubstr("rank 1 (process "), HasSubstr("died")));
}

TEST(SharedMemoryFailure, OfCallsThatDifferNamesBoth) {
  const SharedMemorySwitch on(true);
  const auto outcomes = fork_ranks(
      2,
      [](int rank) -> std::string {
        auto world = join_world(60s);
        return error_of<CommError>([&] { world.group().all_reduce(at::ones({rank == 0 ? 10 : 12})); });
      },
      {.end_together = true});
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome.ok());
    EXPECT_THAT(outcome.value, AllOf(HasSubstr("the ranks diverged in group 'world'"),
                                     HasSubstr("rank 0 called all_reduce #1 (sum of 10 Float)"),
                                     HasSubstr("rank 1 called all_reduce #1 (sum of 12 Float)")));
  }
}

}  // namespace
}  // namespace deepspeed::comm
