// How inputs of regions wait for their backward: partitioned, in contiguous slots, as copies on the host.
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <torch/nn/functional/dropout.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/activation/checkpointing.h"
#include "deepspeed/activation/keep/activation_meter.h"
#include "deepspeed/activation/keep/host_copy.h"
#include "deepspeed/activation/keep/slot_buffers.h"
#include "deepspeed/base/error.h"
#include "deepspeed/checkpointing.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/mpu.h"

#include "tests/activation/plain_and_checkpointed.h"
#include "tests/autograd/gpt_block.h"
#include "tests/support/error_of.h"
#include "tests/support/join_world.h"
#include "tests/support/run_ranks.h"
#include "tests/support/test_device.h"

namespace deepspeed::testing {
namespace {

using activation::ActivationMeter;
using activation::HostCopy;
using activation::SlotBuffers;
using ::testing::AllOf;
using ::testing::HasSubstr;

at::Tensor drop_some(const at::Tensor& x) {
  return torch::nn::functional::dropout(x, torch::nn::functional::DropoutFuncOptions().p(0.3));
}

/// Three regions whose inputs are activations, a transposed matrix, integers, and a vector that ranks do not
/// divide.
struct ThreeRegions {
  ThreeRegions() {
    for (at::Tensor& input : inputs) input = input.to(test_device());
    for (const at::Tensor& param : block.parameters()) param.set_data(param.to(test_device()));
  }
  Block block;
  TensorFunction one = [this](Tensors x) -> Tensors {
    return {drop_some(block(x[0])), x[1] * 2, x[2] + 1, x[3].exp()};
  };
  static TensorFunction around(const TensorFunction& function) {
    return [=](Tensors x) -> Tensors {
      x[1] = x[1].t();
      for (int i = 0; i < 3; ++i) x = function(x);
      EXPECT_FALSE(x[1].is_contiguous());
      return {x[0], x[1], x[3]};
    };
  }
  Tensors inputs{at::randn({2, 6, kWidth}), at::randn({3, 5}), at::ones({3}, at::kLong), at::randn({7})};
};

/// Each rank is a model-parallel one: all have the same inputs.
void expect_plain_bits(const comm::ProcessGroup& group, const CheckpointOptions& options,
                       bool use_reentrant) {
  device::seed_generators(1);
  ThreeRegions model;
  checkpointing::configure(CheckpointOptions{});
  const auto plain = see(model.around(model.one), model.inputs, model.block.parameters());
  checkpointing::configure(group, options);
  const auto regions = model.around(checkpointed(model.one, {.use_reentrant = use_reentrant}));
  for (int step = 0; step < 2; ++step) {
    expect_equal_bits(see(regions, model.inputs, model.block.parameters()), plain);
  }
  checkpointing::configure();
}

TEST(KeptInputs, PartitionedOverRanksGiveThePlainBits) {
  run_ranks(3, [](comm::World& world) {
    for (const bool use_reentrant : {false, true}) {
      expect_plain_bits(world.group(), {.partition_activations = true}, use_reentrant);
      expect_plain_bits(
          world.group(),
          {.partition_activations = true, .contiguous_checkpointing = true, .num_checkpoints = 3},
          use_reentrant);
      expect_plain_bits(world.group(), {.partition_activations = true, .checkpoint_in_cpu = true},
                        use_reentrant);
    }
  });
}

TEST(KeptInputs, PartitionedOverRanksMayHoldWhatIsNoNumber) {
  run_ranks(2, [](comm::World& world) {
    checkpointing::configure(world.group(), {.partition_activations = true});
    at::Tensor x = at::ones({5});
    x[3] = std::numeric_limits<float>::quiet_NaN();
    x.requires_grad_();
    const auto y = checkpointing::checkpoint([](at::Tensor h) { return h.exp(); }, x);
    torch::autograd::backward({y.sum()}, {});
    EXPECT_TRUE(x.grad()[3].isnan().item<bool>());
    EXPECT_EQ(x.grad()[4].item<float>(), std::exp(1.0F));
    checkpointing::configure();
  });
}

TEST(KeptInputs, PartitionedOverRanksWhoseInputsDifferAreAnErrorThatNamesTheRegion) {
  // One element more, another order, another bit: of each dtype and of a number of bytes that is no word's.
  const std::vector<std::function<at::Tensor(int)>> inputs = {
      [](int rank) { return at::arange(9, at::kFloat) + rank; },
      [](int rank) {
        return at::arange(64, at::kDouble).view({8, 8}).roll(rank, 0);
      },
      [](int rank) {
        at::Tensor x = at::ones({7}, at::kBFloat16);
        x[6] += rank;
        return x;
      }};
  for (const auto& input : inputs) {
    const auto outcomes =
        fork_ranks(2,
                   [&](int rank) {
                     const auto world = join_world();
                     checkpointing::configure(world.group(), {.partition_activations = true});
                     const at::Tensor x = input(rank).to(test_device()).requires_grad_();
                     const auto y = checkpointing::checkpoint(
                         {.name = "layer 3"}, [](at::Tensor h) { return h.exp(); }, x);
                     return error_of<CommError>([&] {
                       torch::autograd::backward({y.sum()}, {});
                       // Over NCCL calls that differ may end: the ranks compare them meanwhile.
                       for (; tests_use_cuda(); std::this_thread::sleep_for(std::chrono::milliseconds(10)))
                         world.group().barrier();
                     });
                   },
                   {.end_together = true});
    for (const auto& outcome : outcomes) {
      EXPECT_TRUE(outcome.ok()) << outcome.signal;
      EXPECT_THAT(outcome.value, AllOf(HasSubstr("partition_activations: the checksum of input 0 of layer 3"),
                                       HasSubstr("on rank 0"), HasSubstr("on rank 1")));
    }
  }
}

TEST(KeptInputs, GiveThePlainBitsOnOneRank) {
  for (const bool use_reentrant : {false, true}) {
    expect_plain_bits({}, {.partition_activations = true}, use_reentrant);
    expect_plain_bits({}, {.checkpoint_in_cpu = true}, use_reentrant);
  }
}

TEST(KeptInputs, KeepTheStridesOfActivations) {
  // Sums over a gradient depend on its strides in the last bits. Reentrant regions give leaves' gradients the
  // leaves' strides, so this holds for the others.
  Block block;
  const TensorFunction one = [&](Tensors x) -> Tensors {
    return {drop_some(block(x[0].transpose(0, 1).contiguous())).transpose(0, 1)};
  };
  const auto twice = [](const TensorFunction& function) -> TensorFunction {
    return [=](Tensors x) { return function(function({x[0].transpose(0, 1)})); };
  };
  const Tensors inputs{at::randn({2, 6, kWidth})};
  const auto plain = see(twice(one), inputs, block.parameters());
  checkpointing::configure(CheckpointOptions{.partition_activations = true});
  expect_equal_bits(see(twice(checkpointed(one)), inputs, block.parameters()), plain);
  checkpointing::configure();
}

/// All ranks hold parts of one model.
struct OneModel : Mpu {
  explicit OneModel(comm::ProcessGroup group) : group(std::move(group)) {}
  comm::ProcessGroup get_data_parallel_group() const override { return group; }
  comm::ProcessGroup get_model_parallel_group() const override { return group; }
  bool is_model_parallel_parameter(const at::Tensor&) const override { return true; }
  comm::ProcessGroup group;
};

TEST(KeptInputs, TakeAnNthOfTheirBytesOnEachRank) {
  run_ranks(2, [](comm::World& world) {
    const auto mpu = std::make_shared<OneModel>(world.group());
    const auto kept = [&](const checkpointing::ConfigureOptions& options) {
      checkpointing::configure(mpu, options);
      const auto meter = std::make_shared<ActivationMeter>();
      const activation::CountActivations count(meter);
      auto x = at::randn({64, 64}).requires_grad_();
      auto y = checkpointing::checkpoint([](at::Tensor h) { return h.exp().sin(); }, x * 2);
      y = checkpointing::checkpoint([](at::Tensor h) { return h.exp().sin(); }, std::move(y));
      return meter->kept_bytes();
    };
    const int64_t whole = 64 * 64 * 4;
    EXPECT_EQ(kept({}), 2 * whole);
    EXPECT_EQ(kept({.partition_activations = true}), whole);
    // The buffer is there for four regions.
    EXPECT_EQ(kept({.partition_activations = true, .contiguous_checkpointing = true, .num_checkpoints = 4}),
              4 * whole / 2);
    const Json config = {{"train_batch_size", 2},
                         {"activation_checkpointing", {{"partition_activations", true}}}};
    EXPECT_EQ(kept({.deepspeed_config = config}), whole);
    EXPECT_EQ(kept({.deepspeed_config = config, .partition_activations = false}), 2 * whole);
    checkpointing::configure();
  });
}

TEST(KeptInputs, RefuseOneRegionTooManyInContiguousSlots) {
  checkpointing::configure(
      {.partition_activations = true, .contiguous_checkpointing = true, .num_checkpoints = 2});
  const auto region = [](const at::Tensor& x) {
    return checkpointing::checkpoint([](at::Tensor h) { return h.exp().sin(); }, x);
  };
  const auto x = at::randn({8}).requires_grad_();
  const auto y = region(region(x));
  EXPECT_ERROR(UsageError, region(y), "num_checkpoints", "2");
  torch::autograd::backward({y.sum()}, {});
  EXPECT_NO_THROW(region(region(x)));  // the slots are free again
  checkpointing::reset();
  EXPECT_NO_THROW(region(at::randn({5}).requires_grad_()));  // another shape
  checkpointing::configure();
}

TEST(SlotBuffers, UseOneBufferAgain) {
  const auto buffers = std::make_shared<SlotBuffers>(2);
  const auto flat = at::arange(4).to(at::kFloat);
  auto first = SlotBuffers::keep(buffers, 0, flat);
  const auto second = SlotBuffers::keep(buffers, 0, flat * 2);
  const void* place = first->tensor().data_ptr();
  EXPECT_TRUE(second->tensor().equal(flat * 2));
  EXPECT_EQ(first->tensor().storage().unsafeGetStorageImpl(),
            second->tensor().storage().unsafeGetStorageImpl());
  first.reset();
  EXPECT_EQ(SlotBuffers::keep(buffers, 0, flat * 3)->tensor().data_ptr(), place);
  EXPECT_TRUE(second->tensor().equal(flat * 2));
}

TEST(HostCopy, GivesTheTensorBackAndItsMemoryFree) {
  auto x = at::arange(24).to(at::kFloat).view({4, 6}).t();
  const auto expected = x.clone();
  const auto storage = x.storage().getWeakStorageImpl();
  HostCopy copy(x);
  EXPECT_EQ(copy.bytes(), 96);
  x = at::Tensor();
  EXPECT_EQ(storage.use_count(), 0U);
  copy.prefetch();
  const auto back = copy.fetch();
  EXPECT_TRUE(back.equal(expected));
  EXPECT_EQ(back.strides(), expected.strides());
  EXPECT_TRUE(copy.fetch().equal(expected));  // again, without a prefetch
}

TEST(HostCopy, RefusesWhatWasWrittenInPlace) {
  const auto x = at::ones({4});
  HostCopy copy(x);
  x.add_(1);
  EXPECT_ERROR(UsageError, copy.fetch(), "written in place", "[4]", "clone()");
}

}  // namespace
}  // namespace deepspeed::testing
