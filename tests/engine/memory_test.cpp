// What a rank holds follows the formula of ZeRO: counted at torch's allocator, and as the engine itself says.
#include <gtest/gtest.h>

#include "deepspeed/comm/making/buffer.h"
#include "deepspeed/initialize.h"
#include "deepspeed/plan/memory_estimate.h"
#include "deepspeed/zero/layout/shard_layout.h"
#include "deepspeed/zero/params/param_store.h"

#include "tests/support/counting_allocator.h"
#include "tests/support/formula_training.h"
#include "tests/support/run_ranks.h"
#include "tests/support/tiny_gpt.h"

namespace deepspeed {
namespace {

using testing::AllocationCounter;
using testing::TinyGPT;

constexpr int64_t kBucket = 10'000;
// Counters, flags and the batch.
constexpr int64_t kSmallTensors = 32'768;

struct Precision {
  const char* name;
  int64_t bytes;    // of a parameter and of a gradient
  int64_t masters;  // bytes of an fp32 master: in fp32 the parameters are the masters
};

Json measured_config(const Precision& precision, int stage) {
  Json config = {
      {"train_micro_batch_size_per_gpu", 2},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
      {"zero_optimization", {{"stage", stage}, {"overlap_comm", false}, {"reduce_bucket_size", kBucket}}}};
  if (precision.bytes == 2) config[precision.name] = {{"enabled", true}};
  if (config.contains("fp16")) config["fp16"]["initial_scale_power"] = 4;  // no step is to overflow
  return config;
}

/// Parameters P, N ranks: b P of parameters, b P or b P / N of gradients, masters and two fp32 moments over P
/// / N.
void check_rank(const comm::World& world, const Precision& precision, int stage) {
  const AllocationCounter counter;
  auto model = std::make_shared<TinyGPT>(
      testing::TinyGPTConfig{.vocabulary = 256, .context = 16, .width = 64, .layers = 3, .heads = 4});
  auto [engine, optimizer, loader, scheduler] =
      initialize(model, {.config = measured_config(precision, stage), .world = world});
  const testing::FormulaData data{world.size(), 2, 16, 256};
  for (int64_t step = 0; step < 2; ++step) {
    const auto batch = data.batch(step, world.rank());
    engine->backward(engine->forward(batch.tokens, batch.targets));
    engine->step();
  }
  const auto& layout = engine->optimizer()->store().groups()[0].layout;
  // At stage 3 each parameter is padded by itself.
  const zero::ShardLayout* shards = engine->optimizer()->store().shards(0);
  const int64_t padded = shards != nullptr ? shards->flat_numel() * world.size() : layout.padded_numel();
  const int64_t owned = stage == 0 ? padded : padded / world.size();
  const zero::MemoryBytes memory = engine->memory();
  const zero::ModelStatesEstimate estimate = zero::estimate_model_states(
      engine->model(), measured_config(precision, stage), static_cast<int>(world.size()));
  EXPECT_EQ(estimate.states.parameters, memory.parameters);
  EXPECT_EQ(estimate.states.gradients, memory.gradients);
  EXPECT_EQ(estimate.states.master_weights, memory.master_weights);
  EXPECT_EQ(estimate.states.optimizer_states, memory.optimizer_states);
  EXPECT_EQ(memory.parameters, precision.bytes * (stage == 3 ? owned : padded));
  EXPECT_EQ(memory.gradients, precision.bytes * owned);
  EXPECT_EQ(memory.master_weights, precision.masters * owned);
  EXPECT_EQ(memory.optimizer_states, 8 * owned);
  // Stages 1 to 3 keep one buffer, as large as the largest bucket, from step to step.
  int64_t largest = 0;
  for (const auto& param : layout.params()) largest = std::max(largest, param.in_flat.numel());
  const int64_t padding = stage == 3 ? world.size() * int64_t(layout.params().size()) : 0;
  const int64_t buffer = stage >= 1 ? precision.bytes * (std::max(kBucket, largest) + padding) : 0;
  const int64_t live_bytes = counter.live_bytes() + comm::shared_buffer_bytes();
  EXPECT_GE(live_bytes, memory.total());
  EXPECT_LE(live_bytes, memory.total() + buffer + kSmallTensors) << precision.name << " stage " << stage;
}

class Ranks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Memory, Ranks, ::testing::Values(1, 2, 4));

TEST_P(Ranks, HoldWhatTheFormulaSays) {
  for (const Precision& precision :
       {Precision{"fp32", 4, 0}, Precision{"bf16", 2, 4}, Precision{"fp16", 2, 4}}) {
    for (const int stage : {0, 1, 2, 3}) {
      testing::run_ranks(GetParam(), [&](comm::World& world) { check_rank(world, precision, stage); });
    }
  }
}

}  // namespace
}  // namespace deepspeed
