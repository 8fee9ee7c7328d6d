// Groups whose ranks share memory: the bits of the direct exchange, deaths, calls that differ, and what
// happens where memory cannot be shared.
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/hash.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/backends/shm/arena_tensor.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/making/buffer.h"

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
using ::testing::Not;
using testing::run_ranks;
using testing::run_ranks_collect;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Sets the variable for the ranks that are forked while it lives.
class SharedMemorySwitch {
 public:
  explicit SharedMemorySwitch(bool is_on) : before_(env::get(kName)) {
    ::setenv(kName, is_on ? "1" : "0", 1);
  }
  ~SharedMemorySwitch() {
    if (before_) {
      ::setenv(kName, before_->c_str(), 1);
    } else {
      ::unsetenv(kName);
    }
  }
  SharedMemorySwitch(const SharedMemorySwitch&) = delete;
  SharedMemorySwitch& operator=(const SharedMemorySwitch&) = delete;

 private:
  static constexpr const char* kName = "DEEPSPEED_SHARED_MEMORY";
  std::optional<std::string> before_;
};

std::string cpu_backend_name(const ProcessGroup& group) {
  return group.c10d_group()->getBackend(at::kCPU)->getBackendName();
}

at::Tensor same_in_arena(const at::Tensor& tensor) {
  const at::Tensor copy = empty_in_arena(tensor.numel(), tensor.scalar_type());
  copy.copy_(tensor.view({-1}));
  return copy;
}

/// Floats of very different size, so that another order of additions gives other bits; integers that
/// overflow.
at::Tensor numbers_of(int rank, int64_t numel, at::ScalarType type) {
  const at::Tensor x = at::arange(numel, at::kFloat).add(37 * rank).remainder(1009).sub(504);
  if (at::isFloatingType(type)) return (x * std::pow(10.0, rank % 3) / 7).to(type);
  return (x.to(at::kLong) * 48'271 + rank).to(type);
}

/// Powers of two: their product is exact in any order.
at::Tensor exact_factors(int rank, int64_t numel, at::ScalarType type) {
  const at::Tensor x = at::arange(numel, at::kFloat).add(rank).remainder(3).sub(1);
  return at::isFloatingType(type) ? at::exp2(x).to(type) : numbers_of(rank, numel, type);
}

std::string bits_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return std::string(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
}

const std::vector<at::ScalarType> kSharedTypes{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte,
                                               at::kChar,  at::kShort,  at::kInt,  at::kLong};

/// A hash of the results of every reduction, of each size.
std::string hash_of_all_reductions(World& world, bool in_arena) {
  Hash hash;
  const auto place = [&](const at::Tensor& tensor) { return in_arena ? same_in_arena(tensor) : tensor; };
  for (const auto type : kSharedTypes) {
    for (const int64_t numel : {int64_t{1}, int64_t{5}, int64_t{1000}, int64_t{50'021}, int64_t{700'001}}) {
      if (numel == 700'001 && type != at::kFloat && type != at::kBFloat16) continue;
      for (const auto op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct,
                            ReduceOp::kAvg, ReduceOp::kBand, ReduceOp::kBor, ReduceOp::kBxor}) {
        const bool is_bitwise = op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor;
        if (at::isFloatingType(type) ? is_bitwise : op == ReduceOp::kAvg) continue;
        if (numel == 700'001 && op != ReduceOp::kSum && op != ReduceOp::kAvg) continue;
        const auto values = [&](int64_t count) {
          return op == ReduceOp::kProduct ? exact_factors(world.rank(), count, type)
                                          : numbers_of(world.rank(), count, type);
        };
        const at::Tensor tensor = place(values(numel));
        world.group().all_reduce(tensor, op);
        hash.add(bits_of(tensor));
        const at::Tensor input = place(values(numel * world.size())),
                         output = place(at::zeros({numel}, type));
        const std::string before = bits_of(input);
        world.group().reduce_scatter(output, input, op);
        hash.add(bits_of(output));
        EXPECT_EQ(bits_of(input), before);
      }
    }
  }
  return std::to_string(hash.value());
}

class SharedMemory : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SharedMemory, ::testing::Values(1, 2, 3, 4));

TEST_P(SharedMemory, ReducesToTheBitsThatSocketsGive) {
  const auto run = [&](bool is_shared, bool in_arena) {
    const SharedMemorySwitch on(is_shared);
    return run_ranks_collect(GetParam(), [&](World& world) {
      if (world.size() > 1) {
        EXPECT_EQ(cpu_backend_name(world.group()), is_shared ? "shm" : "gloo");
      }
      return hash_of_all_reductions(world, in_arena);
    });
  };
  const auto expected = run(false, false);
  EXPECT_EQ(run(true, false), expected);
  EXPECT_EQ(run(true, true), expected);
}

TEST_P(SharedMemory, SumsUnevenIntervalsInPlaceAsSocketsDo) {
  const auto run = [&](bool is_shared) {
    const SharedMemorySwitch on(is_shared);
    return run_ranks_collect(GetParam(), [&](World& world) {
      Hash hash;
      for (const auto type : {at::kFloat, at::kBFloat16, at::kLong}) {
        constexpr int64_t kNumel = 600'017;
        std::vector<Interval> owned{{2 * kNumel, 2 * kNumel}};  // the first rank owns nothing
        for (int64_t rank = 1; rank < world.size(); ++rank) owned.push_back({100 * rank, 100 * rank + 99});
        owned.back().end = kNumel;
        if (world.size() == 1) owned.back().begin = 17;
        for (const bool in_arena : {false, true}) {
          at::Tensor tensor = numbers_of(world.rank(), kNumel, type);
          if (in_arena) tensor = same_in_arena(tensor);
          world.group().reduce_to_owners(tensor, owned);
          const Interval own = owned[static_cast<size_t>(world.rank())];
          if (!own.empty()) hash.add(bits_of(tensor.narrow(0, own.begin, own.numel())));
        }
      }
      return std::to_string(hash.value());
    });
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_P(SharedMemory, PutsAScaledSumElsewhereAsSocketsDo) {
  const auto run = [&](bool is_shared) {
    const SharedMemorySwitch on(is_shared);
    return run_ranks_collect(GetParam(), [&](World& world) {
      Hash hash;
      for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
        for (const int64_t numel : {int64_t{1'001}, int64_t{3'000'017}}) {  // staged, and past the caches
          const int64_t part = numel / world.size();
          std::vector<Interval> owned;
          for (int64_t rank = 0; rank < world.size(); ++rank)
            owned.push_back({part * rank, part * (rank + 1)});
          const Interval own = owned[static_cast<size_t>(world.rank())];
          const auto sum_of = [&](double factor) {
            const at::Tensor tensor = same_in_arena(numbers_of(world.rank(), numel, type));
            const at::Tensor result = at::zeros({part + 2}, type);
            world.group().start_reduce_to_owners(tensor, owned, {result.narrow(0, 1, part), factor}).wait();
            EXPECT_EQ(result[0].item<double>() + result[part + 1].item<double>(), 0.0);
            return result.narrow(0, 1, part);
          };
          const at::Tensor in_place = same_in_arena(numbers_of(world.rank(), numel, type));
          world.group().reduce_to_owners(in_place, owned);
          const at::Tensor sum = in_place.narrow(0, own.begin, own.numel());
          EXPECT_TRUE(at::equal(sum_of(1.0), sum)) << type << " x " << numel;
          const at::Tensor third = sum_of(1.0 / 3);
          EXPECT_TRUE(at::equal(third, at::mul(sum, at::scalar_tensor(1.0 / 3, type))))
              << type << " x " << numel;
          hash.add(bits_of(third.clone()));
        }
      }
      return std::to_string(hash.value());
    });
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_P(SharedMemory, MovesTensorsOfAnyDtype) {
  const SharedMemorySwitch on(true);
  run_ranks(GetParam(), [](World& world) {
    const auto& group = world.group();
    for (const auto type : {at::kFloat, at::kBool, at::kComplexDouble, at::kShort}) {
      for (const int64_t numel : {int64_t{1}, int64_t{777}, int64_t{300'001}}) {
        const auto values = [&](int rank) { return (numbers_of(rank, numel, at::kFloat) > 3).to(type); };
        at::Tensor tensor = values(world.rank());
        group.broadcast(tensor, world.size() - 1);
        EXPECT_TRUE(at::equal(tensor, values(world.size() - 1)));
        const at::Tensor gathered = at::zeros({world.size(), numel}, type);
        group.all_gather(gathered, values(world.rank()));
        const at::Tensor blocks = at::zeros({world.size(), numel}, type);
        std::vector<at::Tensor> own_blocks;
        for (int rank = 0; rank < world.size(); ++rank)
          own_blocks.push_back(values(world.rank() * 10 + rank));
        group.all_to_all(blocks, at::stack(own_blocks));
        for (int rank = 0; rank < world.size(); ++rank) {
          EXPECT_TRUE(at::equal(gathered[rank], values(rank)));
          EXPECT_TRUE(at::equal(blocks[rank], values(rank * 10 + world.rank())));
        }
      }
    }
    group.barrier();
    EXPECT_EQ(group.all_gather_text("rank " + std::to_string(world.rank())).back(),
              "rank " + std::to_string(world.size() - 1));
  });
}

TEST(SharedMemoryMessages, CrossAndMeetByTheirTags) {
  const SharedMemorySwitch on(true);
  run_ranks(3, [](World& world) {
    const auto& group = world.group();
    const int next = (world.rank() + 1) % 3, before = (world.rank() + 2) % 3;
    for (const int64_t numel : {int64_t{1}, int64_t{5000}, int64_t{2'000'003}}) {
      const at::Tensor own = numbers_of(world.rank(), numel, at::kFloat);
      const at::Tensor shared = same_in_arena(own);
      const at::Tensor first = at::empty({numel}), second = at::empty({numel});
      Work to_next = group.start_send(own, next, 4), also = group.start_send(shared, next, 5);
      Work later = group.start_recv(second, before, 5), sooner = group.start_recv(first, before, 4);
      for (Work* work : {&later, &sooner, &also, &to_next}) work->wait();
      EXPECT_TRUE(at::equal(first, numbers_of(before, numel, at::kFloat)));
      EXPECT_TRUE(at::equal(second, first));
    }
  });
}

TEST(SharedMemoryMessages, ArriveWhileTheReceiverWaitsForSomethingElse) {
  const SharedMemorySwitch on(true);
  run_ranks(2, [](World& world) {
    const at::Tensor tensor = at::full({100'000}, world.rank() + 1.0);
    if (world.rank() == 0) {
      world.group().send(tensor, 1);  // ends only when rank 1, which waits in the barrier, has it
      world.group().barrier();
    } else {
      Work received = world.group().start_recv(tensor, 0);
      world.group().barrier();
      received.wait();
      EXPECT_EQ(tensor[99'999].item<float>(), 1.0F);
    }
  });
}

TEST(SharedMemoryBackend, TakesWhatC10dCallsAndLeavesTheRestToGloo) {
  const SharedMemorySwitch on(true);
  run_ranks(2, [](World& world) {
    const auto group = world.group().c10d_group();
    std::vector<at::Tensor> tensors{at::full({40'000}, world.rank() + 1.0)};
    auto work = group->allreduce(tensors);
    work->wait();
    EXPECT_EQ(tensors[0][39'999].item<float>(), 3.0F);
    EXPECT_TRUE(work->getFuture()->completed());
    std::vector<std::vector<at::Tensor>> lists{{at::zeros({3}), at::zeros({3})}};
    std::vector<at::Tensor> inputs{at::full({3}, world.rank() + 5.0)};
    group->allgather(lists, inputs)->wait();
    EXPECT_EQ(lists[0][1][2].item<float>(), 6.0F);
    std::vector<at::Tensor> complex_numbers{at::ones({2}, at::kBool)};
    group->broadcast(complex_numbers)->wait();
    group->barrier()->wait();
  });
}

TEST(SharedMemoryBackend, CarriesGroupsOfSomeRanks) {
  const SharedMemorySwitch on(true);
  run_ranks(3, [](World& world) {
    const auto group = world.new_group({0, 2}, "ends");
    if (world.rank() == 1) return;
    EXPECT_EQ(cpu_backend_name(group), "shm");
    EXPECT_EQ(group.all_reduce_scalar(world.rank() + 1.0), 4.0);
  });
}

TEST(SharedMemoryFailure, OfARankThatIsKilledNamesItWithinASecond) {
  const SharedMemorySwitch on(true);
  for (const int dying : {0, 1, 2}) {
    for (const int64_t numel : {int64_t{3}, int64_t{1} << 20}) {
      const auto outcomes = fork_ranks(3, [&](int rank) -> std::string {
        auto world = join_world(60s);
        const at::Tensor tensor = at::ones({numel});
        world.group().all_reduce(tensor);
        const auto begin = Clock::now();
        if (rank == dying) {
          std::thread([] {
            std::this_thread::sleep_for(100ms);
            ::kill(::getpid(), SIGKILL);
          }).detach();
        }
        const std::string text = error_of<CommError>([&] {
          while (Clock::now() - begin < 30s) world.group().all_reduce(tensor);
        });
        // A busy machine gets a second more than the one that is promised after the death.
        EXPECT_LT(Clock::now() - begin, 2100ms);
        return text;
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

/// Has the system refuse memory without a name to this process, as a container may.
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
      // Both ways at once, and a small message behind the large one.
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

TEST(SharedMemoryTensors, GrowAndOutliveTheirGroup) {
  const SharedMemorySwitch on(true);
  run_ranks(2, [](World& world) {
    at::Tensor grown = empty_in_arena(4, at::kFloat);
    grown.fill_(3);
    grown.resize_({5000});
    EXPECT_EQ(grown[3].item<float>(), 3.0F);
    const auto group = world.new_group({0, 1}, "short");
    group.all_reduce(grown.narrow(0, 0, 4));
    EXPECT_EQ(grown[3].item<float>(), 6.0F);
  });
}

// The line of the process's memory map that holds the address.
std::string mapping_at(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2 && begin <= wanted && wanted < end)
      return line;
  }
  return "";
}

// So the system takes it back with the last process, whatever ended that.
TEST(SharedMemoryTensors, LieInMemoryWithoutAName) {
  const SharedMemorySwitch on(true);
  run_ranks(2, [](World& world) {
    const at::Tensor tensor = buffer(100'000, at::kFloat);
    world.group().all_reduce(tensor.fill_(1));
    EXPECT_THAT(mapping_at(tensor.const_data_ptr()), HasSubstr("/memfd:deepspeed (deleted)"));
    EXPECT_THAT(mapping_at(buffer(100, at::kFloat).const_data_ptr()), Not(HasSubstr("memfd")));
  });
}

}  // namespace
}  // namespace deepspeed::comm
