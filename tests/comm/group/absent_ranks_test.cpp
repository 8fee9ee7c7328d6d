// Ranks wait for others to make a group, and some of those leave or die first.
#include "deepspeed/comm/group/absent_ranks.h"

#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
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
using namespace std::chrono_literals;

TEST(AbsentRanks, AreThoseThatNotedIt) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  AbsentRanks of_two(*store, {0, 1}, {}), of_others(*store, {0, 2}, {});
  EXPECT_EQ(of_two.find(), std::nullopt);
  note_absence(*store, 1, "left the job");
  EXPECT_EQ(of_two.find(), "rank 1 left the job");
  EXPECT_EQ(of_others.find(), std::nullopt);
}

TEST(AbsentRanks, AreThoseWhoseProcessEnded) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  int told[2], stays[2];
  ASSERT_EQ(::pipe(told), 0);
  ASSERT_EQ(::pipe(stays), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto own = c10::make_intrusive<c10d::HashStore>();
    note_presence(*own, 1);
    const auto mark = own->get("process/1");
    const auto written = ::write(told[1], mark.data(), mark.size());
    char byte = 0;
    std::_Exit(written > 0 && ::read(stays[0], &byte, 1) == 1 ? 0 : 1);
  }
  std::vector<char> mark(4096);
  const auto size = ::read(told[0], mark.data(), mark.size());
  ASSERT_GT(size, 0);
  static_cast<c10d::Store&>(*store).set("process/1", std::string(mark.data(), size_t(size)));
  note_presence(*store, 0);
  AbsentRanks absent(*store, {0, 1}, {0, 1}), elsewhere(*store, {0, 1}, {});
  EXPECT_EQ(absent.find(), std::nullopt);
  EXPECT_EQ(absent.describe_stopped(), "");
  ::kill(child, SIGSTOP);
  ::waitpid(child, nullptr, WUNTRACED);
  EXPECT_EQ(absent.find(), std::nullopt);
  EXPECT_EQ(absent.describe_stopped(), "rank 1 (process " + std::to_string(child) + ") is stopped (state T)");
  ::kill(child, SIGCONT);
  ASSERT_EQ(::write(stays[1], "x", 1), 1);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, id_t(child), &ended, WEXITED | WNOWAIT),
            0);  // a zombie: nobody has waited for it
  const std::string expected = "rank 1 ended (process " + std::to_string(child) + ")";
  EXPECT_EQ(absent.find(), expected);
  EXPECT_EQ(elsewhere.find(), expected) << "what one rank saw, it notes for the others";
  ::waitpid(child, nullptr, 0);
}

/// Lets rank 1 leave while the others make a group, and returns their errors.
std::vector<std::string> errors_where_one_goes(bool is_own, const std::function<std::string(World&)>& go) {
  const auto outcomes = fork_ranks(3, [&](int rank) {
    auto world = join_world();
    if (rank == 1) return go(world);
    return error_of<CommError>([&] {
      if (is_own) {
        world.own_group("engine");
      } else {
        world.new_group({0, 1, 2}, "engine");
      }
    });
  });
  return {outcomes[0].value, outcomes[2].value};
}

TEST(AbsentRanks, ThatEndBeforeAGroupIsMadeAreNamedByTheOthers) {
  for (const bool is_own : {true, false}) {
    const auto killed = [](World&) -> std::string {
      ::raise(SIGKILL);
      return {};
    };
    for (const std::string& error : errors_where_one_goes(is_own, killed))
      EXPECT_THAT(error, AllOf(HasSubstr("rank 1 ended (process "), HasSubstr("engine"))) << is_own;
  }
}

TEST(AbsentRanks, ThatLeaveBeforeAGroupIsMadeAreNamedByTheOthers) {
  const auto exits = [](World&) -> std::string { std::exit(0); };
  const auto leaves = [](World& world) -> std::string {
    world = World();
    destroy_process_group();
    std::this_thread::sleep_for(5s);
    return {};
  };
  const auto shuts_down = [](World& world) { return error_of<CommError>([&] { world.shutdown(); }); };
  for (const std::string& error : errors_where_one_goes(true, exits))
    EXPECT_THAT(error, AllOf(HasSubstr("rank 1 "), HasSubstr("engine")));
  for (const std::string& error : errors_where_one_goes(true, leaves))
    EXPECT_THAT(error, AllOf(HasSubstr("rank 1 left the job"), HasSubstr("engine")));
  for (const std::string& error : errors_where_one_goes(true, shuts_down))
    EXPECT_THAT(error, AllOf(HasSubstr("rank 1 left the job"), HasSubstr("engine")));
}

TEST(AbsentRanks, ThatHeldTheStoreAreNamedByTheOthers) {
  const auto outcomes = fork_ranks(2, [&](int rank) -> std::string {
    auto world = join_world();
    world.group().barrier();
    if (rank == 0) ::raise(SIGKILL);
    return error_of<CommError>([&] { world.own_group("engine"); });
  });
  EXPECT_THAT(outcomes[1].value, AllOf(HasSubstr("rank 0"), HasSubstr("engine")));
}

}  // namespace
}  // namespace deepspeed::comm
