// fp16.auto_cast, data_types.buffer_dtype and bf16's own options: each one's effect.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/model/cast_inputs.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/zero_state.h"

#include "tests/engine/make_engine.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/training_run.h"

namespace deepspeed::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Json with_stage(int stage, Json patch) {
  patch["zero_optimization"] = {{"stage", stage}, {"reduce_bucket_size", 150}};
  return patch;
}

const Json kBf16Masters = {
    {"bf16", {{"enabled", true}, {"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}}}};

at::Tensor param(OddNet& net, const char* name) { return net.named_parameters()[name]; }

// --- fp16.auto_cast ---

TEST(AutoCast, LetsForwardTakeFloat32) {
  for (const bool cast : {false, true}) {
    const auto engine =
        make_engine(basic({{"fp16", {{"enabled", true}, {"auto_cast", cast}, {"initial_scale_power", 4}}}}));
    const auto [inputs, targets] = odd_batch(0, 4);
    if (!cast) {
      EXPECT_ERROR(c10::Error, engine->forward(inputs, targets),
                   "must have the same dtype, but got Float and Half");
      continue;
    }
    const at::Tensor loss = engine->forward(inputs, targets);
    EXPECT_EQ(loss.scalar_type(), at::kHalf);
    EXPECT_TRUE(loss.equal(engine->forward(inputs.to(at::kHalf), targets.to(at::kHalf))));
    engine->backward(loss);
    engine->step();
    EXPECT_TRUE(engine->was_step_applied());
  }
}

struct Opaque {
  explicit Opaque(int*) {}
};

TEST(AutoCast, WalksContainersAndLeavesTheRest) {
  using Batch = std::pair<std::vector<at::Tensor>, std::optional<at::Tensor>>;
  const Batch batch{{at::ones({2}), at::ones({2}, at::kLong)}, at::ones({1}, at::kDouble)};
  const Batch cast = cast_input(at::kHalf, batch);
  EXPECT_EQ(cast.first[0].scalar_type(), at::kHalf);
  EXPECT_EQ(cast.first[1].scalar_type(), at::kLong);
  EXPECT_EQ(cast.second->scalar_type(), at::kHalf);
  EXPECT_EQ(batch.first[0].scalar_type(), at::kFloat) << "the caller's own tensors stay";
  EXPECT_EQ(cast_input(at::kHalf, 3), 3);
  EXPECT_FALSE(cast_input(at::kHalf, at::Tensor()).defined());
  const Opaque opaque(nullptr);
  EXPECT_THAT([&] { cast_input(at::kHalf, opaque); },
              ThrowsMessage<UsageError>(HasSubstr("write visit_tensors(MyType&")));
}

TEST(AutoCast, LetsGradientsThrough) {
  const at::Tensor input = at::ones({2}).requires_grad_();
  const at::Tensor cast = cast_input(at::kHalf, input);
  cast.to(at::kFloat).sum().backward();
  EXPECT_TRUE(input.grad().equal(at::ones({2})));
}

// --- data_types.buffer_dtype ---

TEST(BufferDtype, IsWhatBuffersHave) {
  const auto dtype_of = [](const Json& patch) {
    return make_engine(basic(patch))->module().named_buffers()["counter"].scalar_type();
  };
  const Json bf16 = {{"bf16", {{"enabled", true}}}};
  Json both = bf16;
  both["data_types"] = {{"buffer_dtype", "bfloat16"}};
  EXPECT_EQ(dtype_of(bf16), at::kFloat);
  EXPECT_EQ(dtype_of(both), at::kBFloat16);
  EXPECT_EQ(dtype_of({{"data_types", {{"buffer_dtype", "half"}}}}), at::kHalf);
}

// --- bf16.immediate_grad_update ---

TEST(ImmediateGradUpdate, SumsInFloat32) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      std::vector<at::Tensor> weights;
      for (const Json& patch :
           {Json{{"bf16", {{"enabled", true}, {"immediate_grad_update", true}}}},
            Json{{"bf16", {{"enabled", true}}}, {"data_types", {{"grad_accum_dtype", "fp32"}}}},
            Json{{"bf16", {{"enabled", true}}}}}) {
        Json config = basic(with_stage(stage, patch));
        config["gradient_accumulation_steps"] = 3;
        const auto engine = make_engine(config, world);
        const int64_t padded = engine->optimizer()->store().groups()[0].layout.padded_numel();
        const int64_t kept = stage == 2 ? padded / world.size() : padded;
        EXPECT_EQ(engine->memory().gradients, kept * (weights.size() < 2 ? 4 : 2)) << "stage " << stage;
        for (int step = 0; step < 6; ++step) train_step(*engine, 4 * (2 * step + world.rank()));
        weights.push_back(param(engine->module(), "first.weight").detach());
      }
      EXPECT_TRUE(weights[0].equal(weights[1])) << "stage " << stage;
      EXPECT_FALSE(weights[0].equal(weights[2])) << "stage " << stage;
    }
  });
}

TEST(ImmediateGradUpdate, ContradictsSumsInBf16) {
  const auto refuses = [](const Json& patch) {
    EXPECT_THAT([&] { make_engine(basic(patch)); },
                ThrowsMessage<ConfigError>(HasSubstr("bf16.immediate_grad_update: got true")));
  };
  Json patch = {{"bf16", {{"enabled", true}, {"immediate_grad_update", true}}},
                {"data_types", {{"grad_accum_dtype", "bf16"}}}};
  refuses(patch);
  patch = kBf16Masters;
  patch["bf16"]["immediate_grad_update"] = true;
  refuses(with_stage(1, patch));
}

// --- 16-bit masters and states ---

TEST(SixteenBitMasters, TakeAThirdOfTheBytes) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {1, 2}) {
      const auto engine = make_engine(basic(with_stage(stage, kBf16Masters)), world);
      train_step(*engine, world.rank());
      const int64_t padded = engine->optimizer()->store().groups()[0].layout.padded_numel();
      const zero::MemoryBytes memory = engine->memory();
      EXPECT_EQ(memory.parameters, 2 * padded);
      EXPECT_EQ(memory.gradients, 2 * padded / 2);
      EXPECT_EQ(memory.master_weights, 0);
      EXPECT_EQ(memory.optimizer_states, (2 + 2) * padded / 2);
      EXPECT_EQ(engine->optimizer()->state().master(0).scalar_type(), at::kBFloat16);
      EXPECT_TRUE(
          engine->optimizer()->state().master(0).is_alias_of(engine->optimizer()->store().groups()[0].flat));
    }
  });
}

TEST(SixteenBitMasters, AreSteppedWithoutACopyInFloat32) {
  for (const int stage : {1, 2, 3}) {
    run_ranks(1, [&](comm::World& world) {
      const auto engine = make_engine(basic(with_stage(stage, kBf16Masters)), world);
      train_step(*engine);
      const auto [inputs, targets] = odd_batch(4, 4);
      engine->backward(engine->forward(inputs.to(at::kBFloat16), targets));
      const AllocationCounter counter;
      engine->step();
      EXPECT_LT(counter.peak_bytes(), 2 * engine->memory().parameters / 4) << stage;
    });
  }
}

TEST(SixteenBitMasters, TrainTheSameAtBothStagesAndNearFloat32Masters) {
  TrainingSpec spec{.world_size = 2, .steps = 12};
  spec.config = with_stage(1, {{"bf16", {{"enabled", true}}}});
  const TrainingResult reference = run_training(spec);
  ASSERT_FALSE(reference.losses.empty());
  spec.config = with_stage(1, kBf16Masters);
  const TrainingResult one = run_training(spec);
  spec.config = with_stage(2, kBf16Masters);
  EXPECT_EQ(run_training(spec).weights, one.weights);
  EXPECT_LT(one.losses.back(), one.losses.front());
  // Updates of 0.01 on weights of 0.4: bf16 keeps 8 bits of each.
  EXPECT_LT(largest_relative_difference(one.losses, reference.losses), 0.1);
  EXPECT_NE(one.weights, reference.weights);
}

TEST(SixteenBitMasters, ContinueFromACheckpointBitForBit) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const Json config = basic(with_stage(2, kBf16Masters));
    const auto straight = make_engine(config, world), resumed = make_engine(config, world);
    for (int step = 0; step < 3; ++step) train_step(*straight, 4 * (2 * step + world.rank()));
    straight->save_checkpoint(folder.path());
    train_step(*resumed, 99);
    resumed->load_checkpoint(folder.path());
    for (int step = 3; step < 6; ++step) {
      for (const auto& engine : {straight, resumed}) train_step(*engine, 4 * (2 * step + world.rank()));
    }
    EXPECT_TRUE(param(straight->module(), "first.weight").equal(param(resumed->module(), "first.weight")));
  });
}

TEST(SixteenBitMasters, AreRefusedIfTheyCannotBe) {
  const auto refuses = [](const Json& patch, const char* text) {
    EXPECT_THAT([&] { make_engine(basic(patch)); }, ThrowsMessage<ConfigError>(HasSubstr(text))) << patch;
  };
  refuses(with_stage(0, kBf16Masters), "bf16.bf16_master_weights_and_grads: got true at stage 0");
  refuses(with_stage(1, {{"bf16", {{"enabled", true}, {"bf16_optimizer_states", true}}}}),
          "bf16.bf16_optimizer_states: got true");
  refuses(with_stage(1, {{"bf16", {{"enabled", true}, {"bf16_master_weights_and_grads", true}}}}),
          "offload_optimizer.device");
  refuses(with_stage(1, {{"fp16", {{"enabled", true}, {"fp16_master_weights_and_grads", true}}}}),
          "offload_optimizer.device");
  Json disabled = kBf16Masters;
  disabled["bf16"]["enabled"] = false;
  refuses(with_stage(1, disabled), "expected bf16.enabled true");
  Json sums = with_stage(1, kBf16Masters);
  sums["data_types"] = {{"grad_accum_dtype", "fp32"}};
  refuses(sums, "data_types.grad_accum_dtype: got fp32");
  Json lion = with_stage(1, kBf16Masters);
  lion["optimizer"] = {{"type", "Lion"}, {"params", {{"lr", 0.001}, {"betas", {0.9, 0.99}}}}};
  refuses(lion, "the state of FusedLion is kept in float32");
}

}  // namespace
}  // namespace deepspeed::testing
