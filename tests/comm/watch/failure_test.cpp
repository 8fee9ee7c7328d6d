// Checks what a rank sees when others die, hang or never come.
#include <filesystem>
#include <thread>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/comm/init.h"

#include "tests/support/error_of.h"
#include "tests/support/join_world.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::comm {
namespace {

using ::testing::AllOf;
using testing::error_of;
using testing::fork_ranks;
using testing::free_port;
using ::testing::HasSubstr;
using testing::join_world;
using namespace std::chrono_literals;

volatile sig_atomic_t num_handled = 0;

TEST(Failure, OfAPeerIsNoSignalThatEndsThisRank) {
  for (const bool has_handler : {false, true}) {
    const auto outcomes = fork_ranks(2,
                                     [&](int) -> std::string {
                                       ::signal(SIGPIPE, SIG_DFL);
                                       if (has_handler)
                                         ::signal(SIGPIPE, [](int) { num_handled = num_handled + 1; });
                                       const auto world = join_world(60s);
                                       ::raise(SIGPIPE);
                                       return std::to_string(num_handled);
                                     },
                                     {.end_together = true});
    for (const auto& outcome : outcomes) {
      EXPECT_TRUE(outcome.ok()) << "signal " << outcome.signal;
      EXPECT_EQ(outcome.value, has_handler ? "1" : "0");
    }
  }
}

TEST(Failure, OfARankThatDiesInACollectiveIsNamedByTheOthersBeforeATimeout) {
  for (const int dying : {0, 1, 2}) {
    const auto outcomes = fork_ranks(3, [&](int rank) {
      auto world = join_world();
      auto tensor = at::ones({1 << 20});
      world.group().all_reduce(tensor);
      if (rank == dying) ::kill(::getpid(), SIGKILL);
      return error_of<CommError>([&] {
        for (int i = 0; i < 100; ++i) world.group().all_reduce(tensor);
      });
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == dying) {
        EXPECT_EQ(outcomes[rank].signal, SIGKILL);
        continue;
      }
      EXPECT_TRUE(outcomes[rank].ok()) << rank << " signal " << outcomes[rank].signal;
      EXPECT_THAT(outcomes[rank].value,
                  AllOf(HasSubstr("[comm] all_reduce of group 'world' failed on rank " +
                                  std::to_string(rank) + " of 3"),
                        HasSubstr("no sign of life from rank " + std::to_string(dying))));
    }
  }
}

TEST(Failure, OfARankThatHangsIsNamedAfterTheTimeout) {
  const auto outcomes = fork_ranks(3, [](int rank) {
    auto world = join_world(1s);
    if (rank == 1) {
      std::this_thread::sleep_for(8s);
      return std::string("slept");
    }
    auto output = at::zeros({3});
    return error_of<CommError>([&] { world.group().all_gather(output, at::ones({1})); });
  });
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(outcomes[rank].ok());
    EXPECT_THAT(outcomes[rank].value,
                AllOf(HasSubstr("all_gather of group 'world' failed on rank " + std::to_string(rank)),
                      HasSubstr("after 1"), HasSubstr("no sign of life from rank 1")));
  }
  EXPECT_EQ(outcomes[1].value, "slept");
}

TEST(Failure, OfAStoppedRankThatHoldsTheStoreIsStillBounded) {
  const auto outcomes = fork_ranks(2,
                                   [](int rank) {
                                     auto world = join_world(1s);
                                     world.group().barrier();  // connecting still needs the store
                                     if (rank == 0) ::raise(SIGSTOP);
                                     return error_of<CommError>([&] { world.group().barrier(); });
                                   },
                                   {.hang_limit = 20s});
  EXPECT_TRUE(outcomes[0].hung);
  EXPECT_THAT(outcomes[1].value,
              AllOf(HasSubstr("barrier of group 'world' failed on rank 1 of 2"), HasSubstr("rank 0")));
}

TEST(Failure, MakesTheGroupUnusableWithTheFirstReason) {
  const auto outcomes = fork_ranks(2, [](int rank) {
    auto world = join_world(1s);
    if (rank == 1) {
      std::this_thread::sleep_for(5s);
      return std::string();
    }
    auto tensor = at::ones({4});
    error_of<CommError>([&] { world.group().recv(tensor, 1); });
    return error_of<CommError>([&] { world.group().all_reduce(tensor); });
  });
  EXPECT_TRUE(outcomes[0].ok());
  EXPECT_THAT(outcomes[0].value,
              AllOf(HasSubstr("all_reduce of group 'world' cannot run"), HasSubstr("recv of group")));
}

TEST(Failure, LeavesTheProcessAbleToEndCleanly) {
  const auto outcomes = fork_ranks(2, [](int rank) -> std::string {
    auto world = join_world(20s);
    auto tensor = at::ones({1 << 18});
    const auto work = world.group().start_all_reduce(tensor);
    const auto more = world.group().start_all_reduce(at::ones({1 << 18}));
    if (rank == 0) std::exit(0);  // with operations in progress, through the static destructors
    std::exit(error_of<CommError>([&] {
                for (int i = 0; i < 9; ++i) world.group().all_reduce(tensor);
              }) == "no error");
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.signal, 0);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_FALSE(outcome.hung);
  }
}

TEST(Failure, DestroyingAWorldWithPendingWorkDoesNotWait) {
  const testing::TemporaryFolder folder;
  const auto outcomes = fork_ranks(2, [&](int rank) {
    auto world = join_world();
    if (rank == 1) {  // it makes no calls, and stays until the other one has left
      while (!std::filesystem::exists(folder / "left")) std::this_thread::sleep_for(10ms);
      return std::string();
    }
    {
      const auto work = world.group().start_all_reduce(at::ones({1024}));
      world = World();
      destroy_process_group();
    }
    EXPECT_FALSE(is_initialized());
    folder.write("left", "");
    return std::string("left");
  });
  EXPECT_TRUE(outcomes[0].ok());
  EXPECT_EQ(outcomes[0].value, "left");
}

TEST(Rendezvous, WithARankMissingNamesItTheAddressAndThePortInTime) {
  const auto outcomes = fork_ranks(2, [](int) {
    env::set("WORLD_SIZE", std::string("4"));
    return error_of<CommError>([] { join_world(2s); }) + " port " + *env::get("MASTER_PORT");
  });
  for (int rank = 0; rank < 2; ++rank) {
    const auto& text = outcomes[rank].value;
    const auto port = text.substr(text.rfind(' '));
    EXPECT_THAT(text,
                AllOf(HasSubstr("rank " + std::to_string(rank) + " of 4 could not join the job"),
                      HasSubstr("the address 127.0.0.1, port" + port), HasSubstr("no sign of rank(s) 2, 3")));
  }
}

TEST(Rendezvous, AtAHostThatNobodyKnowsSaysSoBeforeItGivesUp) {
  const auto outcomes = fork_ranks(1, [](int) {
    env::set("RANK", std::string("1"));
    env::set("WORLD_SIZE", std::string("2"));
    env::set("MASTER_ADDR", std::string("no-such-host.invalid"));
    ::testing::internal::CaptureStderr();
    const std::string error = error_of<CommError>([] { join_world(5s); });
    return ::testing::internal::GetCapturedStderr() + "error: " + error;
  });
  const std::string unknown = "rank 1 of 2 does not know the host 'no-such-host.invalid' of MASTER_ADDR";
  EXPECT_THAT(outcomes[0].value, AllOf(HasSubstr(unknown), HasSubstr(": it waits for the name"),
                                       HasSubstr("error: [comm.known_host] " + unknown),
                                       HasSubstr("expected an address or a known name")));
}

TEST(Rendezvous, WithoutRankZeroIsAnErrorInTime) {
  const auto outcomes = fork_ranks(1, [](int) {
    env::set("RANK", std::string("1"));
    env::set("WORLD_SIZE", std::string("2"));
    return error_of<CommError>([] { join_world(2s); });
  });
  EXPECT_THAT(outcomes[0].value,
              HasSubstr("rank 1 of 2 could not join the job at the address 127.0.0.1, port"));
}

TEST(Rendezvous, ByFileAndByTcpAddressNeedsNoEnvironment) {
  const auto file = std::filesystem::temp_directory_path() / ("rendezvous_" + std::to_string(::getpid()));
  const auto tcp = "tcp://127.0.0.1:" + std::to_string(free_port());
  for (const auto& method : {"file://" + file.string(), tcp}) {
    const auto outcomes = fork_ranks(3, [&](int rank) {
      for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"}) {
        env::set(name, std::nullopt);
      }
      auto world = init_distributed(
          {.verbose = false, .timeout = 20s, .init_method = method, .rank = rank, .world_size = 3});
      const auto sum = world.group().all_reduce_scalar(rank + 1);
      world.shutdown();
      return std::to_string(static_cast<int>(sum));
    });
    for (const auto& outcome : outcomes) {
      EXPECT_TRUE(outcome.ok()) << (outcome.failures.empty() ? "" : outcome.failures[0]);
      EXPECT_EQ(outcome.value, "6") << method;
    }
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace deepspeed::comm
