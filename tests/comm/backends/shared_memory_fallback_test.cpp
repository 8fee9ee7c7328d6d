// If memory cannot be shared, ranks of one machine use sockets and staging, and log it.
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/making/buffer.h"

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

TEST(SharedMemoryFallback, IsGlooOnAllRanksWithALineWhereOneMayNotShare) {
  const SharedMemorySwitch on(true);
  const auto outcomes = fork_ranks(3, [](int rank) -> std::string {
    std::string lines;
    log::set_sink([&](log::Level, const std::string& line) { lines += line + "\n"; });
    if (rank == 1) {
      const rlimit small{1 << 20, 1 << 20};
      ::setrlimit(RLIMIT_FSIZE, &small);
    }
    auto world = join_world(60s);
    EXPECT_EQ(cpu_backend_name(world.group()), "gloo");
    EXPECT_EQ(world.group().all_reduce_scalar(1), 3.0);
    world.shutdown();
    log::set_sink({});
    return lines;
  });
  for (const auto& outcome : outcomes)
    EXPECT_TRUE(outcome.ok()) << ::testing::PrintToString(outcome.failures);
  EXPECT_THAT(outcomes[0].value, AllOf(HasSubstr("use sockets"), HasSubstr("rank 1")));
  EXPECT_THAT(outcomes[1].value, HasSubstr("RLIMIT_FSIZE"));
}

TEST(SharedMemoryFallback, IsGlooWhereOneRankSwitchesItOff) {
  const SharedMemorySwitch on(true);
  const auto outcomes = fork_ranks(2, [](int rank) -> std::string {
    if (rank == 1) ::setenv("DEEPSPEED_SHARED_MEMORY", "0", 1);
    auto world = join_world(60s);
    EXPECT_EQ(cpu_backend_name(world.group()), "gloo");
    EXPECT_EQ(world.group().all_reduce_scalar(1), 2.0);
    world.shutdown();
    return "";
  });
  for (const auto& outcome : outcomes)
    EXPECT_TRUE(outcome.ok()) << ::testing::PrintToString(outcome.failures);
}

/// Makes the system refuse memory without a name to this process, as a container may.
bool forbid_memfd() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(rules), rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(SharedMemoryFallback, IsGlooWithALineWhereTheSystemForbidsTheMemory) {
  const SharedMemorySwitch on(true);
  const auto outcomes = fork_ranks(2, [](int rank) -> std::string {
    std::string lines;
    log::set_sink([&](log::Level, const std::string& line) { lines += line + "\n"; });
    if (rank == 1 && !forbid_memfd()) return "no filter";
    auto world = join_world(60s);
    EXPECT_EQ(cpu_backend_name(world.group()), "gloo");
    EXPECT_EQ(world.group().all_reduce_scalar(1), 2.0);
    EXPECT_TRUE(buffer(1 << 20, at::kFloat).defined());
    world.shutdown();
    log::set_sink({});
    return lines;
  });
  if (outcomes[1].value == "no filter") GTEST_SKIP() << "this system has no filters of calls";
  for (const auto& outcome : outcomes)
    EXPECT_TRUE(outcome.ok()) << ::testing::PrintToString(outcome.failures);
  EXPECT_THAT(outcomes[1].value, AllOf(HasSubstr("use sockets"), HasSubstr("memfd_create")));
}

TEST(SharedMemoryFallback, OfAFullArenaStagesAndSendsThroughTheSocket) {
  const SharedMemorySwitch on(true);
  const auto outcomes = fork_ranks(2, [](int rank) -> std::string {
    std::string lines;
    log::set_sink([&](log::Level, const std::string& line) { lines += line + "\n"; });
    const rlimit small{128 << 20, 128 << 20};
    ::setrlimit(RLIMIT_FSIZE, &small);
    auto world = join_world(60s);
    EXPECT_EQ(cpu_backend_name(world.group()), "shm");
    std::vector<at::Tensor> held;
    while (lines.find("private memory") == std::string::npos && held.size() < 1000)
      held.push_back(buffer(1 << 20, at::kFloat));  // each of 4 MiB
    const at::Tensor content = at::arange((3 << 20) + 5, at::kFloat);
    for (int turn = 0; turn < 3; ++turn) {
      at::Tensor moved = rank == 0 ? content + turn : at::zeros_like(content);
      // Both directions at once, and a small message after the large one.
      const at::Tensor back = rank == 0 ? at::zeros_like(content) : content * 2;
      at::Tensor note = at::full({3}, double(7 + rank * turn));
      const auto& group = world.group();
      Work first = rank == 0 ? group.start_send(moved, 1, 5) : group.start_recv(moved, 0, 5);
      Work second = rank == 0 ? group.start_recv(back, 1, 5) : group.start_send(back, 0, 5);
      Work third = rank == 0 ? group.start_send(note, 1, 5) : group.start_recv(note, 0, 5);
      first.wait();
      second.wait();
      third.wait();
      EXPECT_TRUE(moved.equal(content + turn));
      EXPECT_TRUE(back.equal(content * 2));
      EXPECT_TRUE(note.eq(7).all().item<bool>());
    }
    const at::Tensor sum = content.clone();
    world.group().all_reduce(sum);
    EXPECT_TRUE(sum.equal(content * 2));
    world.shutdown();
    log::set_sink({});
    return lines;
  });
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome.ok()) << ::testing::PrintToString(outcome.failures);
    EXPECT_THAT(outcome.value, HasSubstr("lies in private memory"));
  }
}

TEST(SharedMemoryFallback, RefusesAVariableThatIsNoSwitch) {
  const auto outcomes = fork_ranks(1, [](int) -> std::string {
    ::setenv("DEEPSPEED_SHARED_MEMORY", "2", 1);
    return error_of<UsageError>([] { init_distributed({.dist_backend = "gloo", .verbose = false}); });
  });
  EXPECT_THAT(outcomes[0].value, AllOf(HasSubstr("DEEPSPEED_SHARED_MEMORY is 2"), HasSubstr("expected 1")));
}

}  // namespace
}  // namespace deepspeed::comm
