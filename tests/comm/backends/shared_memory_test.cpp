// Groups that share memory: same bits as direct exchange, messages, and the place of tensors.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/hash.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/comm/backends/shm/arena_tensor.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/making/buffer.h"

#include "tests/comm/backends/shared_memory_switch.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_ranks;
using testing::run_ranks_collect;

at::Tensor same_in_arena(const at::Tensor& tensor) {
  const at::Tensor copy = empty_in_arena(tensor.numel(), tensor.scalar_type());
  copy.copy_(tensor.view({-1}));
  return copy;
}

/// Returns values for which another order of additions gives different bits. Floats differ much in size;
/// integers overflow.
at::Tensor numbers_of(int rank, int64_t numel, at::ScalarType type) {
  const at::Tensor x = at::arange(numel, at::kFloat).add(37 * rank).remainder(1009).sub(504);
  if (at::isFloatingType(type)) return (x * std::pow(10.0, rank % 3) / 7).to(type);
  return (x.to(at::kLong) * 48'271 + rank).to(type);
}

/// Returns powers of two, whose product is exact in any order.
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

/// Hashes the results of every reduction, at each size.
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
        for (const int64_t numel :
             {int64_t{1'001}, int64_t{3'000'017}}) {  // staged, and larger than the caches
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
          EXPECT_TRUE(at::equal(third, sum.mul(1.0 / 3))) << type << " x " << numel;
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

// Returns the line of the process's memory map that contains the address.
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

// The system frees memory without a name with the last process, however that ends.
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
