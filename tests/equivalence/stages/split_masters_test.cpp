// bf16.split_master_weights: fp32 masters whose upper halves are the model's weights train as those beside
// the weights do, bit for bit, in memory and on disks, and checkpoints go both ways.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/zero_state.h"

#include "tests/engine/make_engine.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gpt.h"

namespace deepspeed::testing {
namespace {

using ::testing::HasSubstr;
using OddEngine = std::shared_ptr<DeepSpeedEngine<OddNet>>;

constexpr double kRate = 0.01;

Json bf16_config(int stage, bool is_split, Json patch = Json::object()) {
  Json config = basic({{"bf16", {{"enabled", true}, {"split_master_weights", is_split}}},
                       {"log_level", "error"},
                       {"zero_optimization",
                        {{"stage", stage},
                         {"reduce_bucket_size", 200},
                         {"sub_group_size", 20},
                         {"stage3_param_persistence_threshold", 13}}}});
  config.merge_patch(patch);
  return config;
}

Json split_at_stage(int stage, Json zero = Json::object(), Json patch = Json::object()) {
  patch["zero_optimization"] = std::move(zero);
  return bf16_config(stage, true, std::move(patch));
}

/// Every place that the stage knows for masters, states and weights.
std::vector<Json> homes(int stage, const std::string& folder) {
  const Json cpu = {{"device", "cpu"}};
  const Json disk = {
      {"device", "nvme"}, {"nvme_path", folder}, {"pipeline_read", true}, {"pipeline_write", true}};
  std::vector<Json> homes = {split_at_stage(stage)};
  if (stage == 0) return homes;
  for (const Json& place : {cpu, disk})
    homes.push_back(split_at_stage(stage, {{"offload_optimizer", place}}));
  if (stage < 3) return homes;
  const Json params = {{"device", "nvme"}, {"nvme_path", folder}, {"max_in_cpu", 0}};
  for (Json place : {cpu, disk}) {
    place["ratio"] = 0.5;
    homes.push_back(split_at_stage(stage, {{"offload_optimizer", place}}));
    homes.push_back(split_at_stage(stage, {{"offload_optimizer", place}, {"offload_param", cpu}}));
    homes.push_back(split_at_stage(stage, {{"offload_optimizer", place}, {"offload_param", params}},
                                   {{"aio", {{"block_size", 4096}}}}));
  }
  return homes;
}

std::vector<at::Tensor> masters_of(const OddEngine& engine) {
  std::vector<at::Tensor> masters;
  for (const at::Tensor& param : engine->module().parameters()) {
    if (param.requires_grad()) masters.push_back(safe_get_full_fp32_param(*engine, param));
  }
  return masters;
}

std::vector<at::Tensor> weights_of(const OddEngine& engine) {
  const auto params = engine->module().parameters();
  const zero::GatheredParameters gathered(params);
  std::vector<at::Tensor> weights;
  for (const at::Tensor& param : params) weights.push_back(param.detach().clone());
  return weights;
}

/// Whether a master lies in the middle between two bf16 numbers of which the one nearer to zero is even:
/// there the weight of a split master is the other one.
bool holds_a_half(const std::vector<at::Tensor>& masters) {
  for (const at::Tensor& master : masters) {
    if (master.view(at::kInt).bitwise_and(0x1ffff).eq(0x8000).any().item<bool>()) return true;
  }
  return false;
}

/// `bound`: 0 compares bits.
void expect_near(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, double bound,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t index = 0; index < a.size(); ++index) {
    const at::Tensor difference = a[index].to(at::kFloat) - b[index].to(at::kFloat);
    EXPECT_LE(difference.abs().max().item<double>(), bound) << what << ", parameter " << index;
  }
}

/// Masters and weights of both after each step. From a half on both train on, with weights that differ by a
/// unit in the last place; an update moves a weight by about the rate, whatever the gradients.
void expect_same_training(comm::World& world, const OddEngine& engine, const Json& plain_config,
                          const std::string& what) {
  const OddEngine plain = make_engine(plain_config, world);
  constexpr int kSteps = 8;
  bool is_exact = true;
  for (int step = 0; step < kSteps; ++step) {
    const int64_t first = 4 * (world.size() * step + world.rank());
    const double loss = train_step(*engine, first), expected = train_step(*plain, first);
    if (is_exact) {
      EXPECT_EQ(loss, expected) << what;
    }
    const auto masters = masters_of(plain);
    expect_near(masters_of(engine), masters, is_exact ? 0 : 4 * kRate * step, what);
    is_exact = is_exact && !holds_a_half(masters);
    if (is_exact) expect_near(weights_of(engine), weights_of(plain), 0, what);
    if (step == 0) {
      EXPECT_TRUE(is_exact) << "the data must let at least a step be compared bit by bit";
    }
  }
}

class SplitMasters : public ::testing::TestWithParam<std::tuple<int, int>> {};
INSTANTIATE_TEST_SUITE_P(RanksStage, SplitMasters,
                         ::testing::Combine(::testing::Values(1, 2), ::testing::Values(0, 1, 2, 3)));

TEST_P(SplitMasters, TrainAsFp32MastersBesideTheWeights) {
  const auto [ranks, stage] = GetParam();
  const TemporaryFolder folder;
  for (const Json& config : homes(stage, folder.string())) {
    run_ranks(ranks, [&, at = stage](comm::World& world) {
      expect_same_training(world, make_engine(config, world), bf16_config(at, false),
                           config["zero_optimization"].dump());
    });
  }
}

// What differs between places is none of the arithmetic, so it is equal at halves too.
TEST_P(SplitMasters, TrainTheSameWhereverTheyLie) {
  const auto [ranks, stage] = GetParam();
  const TemporaryFolder folder;
  const std::vector<Json> configs = homes(stage, folder.string());
  run_ranks(ranks, [&](comm::World& world) {
    std::vector<at::Tensor> expected;
    for (const Json& config : configs) {
      const OddEngine engine = make_engine(config, world);
      for (int step = 0; step < 6; ++step) train_step(*engine, 4 * (world.size() * step + world.rank()));
      if (expected.empty()) expected = masters_of(engine);
      expect_near(masters_of(engine), expected, 0, config["zero_optimization"].dump());
    }
  });
}

TEST(SplitMastersOptions, HoldWithClippingAccumulationAndBf16Moments) {
  for (const int stage : {1, 3}) {
    Json patch = {{"gradient_clipping", 0.05}, {"gradient_accumulation_steps", 1}};
    patch["optimizer"]["params"] = {{"lr", kRate}, {"weight_decay", 0.1}, {"moment_dtype", "bf16"}};
    run_ranks(2, [&](comm::World& world) {
      expect_same_training(world, make_engine(bf16_config(stage, true, patch), world),
                           bf16_config(stage, false, patch), message("stage ", stage));
    });
  }
}

TEST(SplitMastersMemory, IsFourteenBytesAParameter) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    for (const int stage : {0, 1, 2, 3}) {
      const OddEngine engine = make_engine(split_at_stage(stage), world);
      train_step(*engine, world.rank());
      const zero::MemoryBytes memory = engine->memory();
      const int64_t owned = engine->optimizer()->state().owned(0).numel();
      const int64_t held = memory.parameters / 2;
      EXPECT_EQ(held, stage == 3 ? owned : engine->optimizer()->store().groups()[0].layout.padded_numel());
      EXPECT_EQ(memory.gradients, 2 * owned) << stage;
      EXPECT_EQ(memory.master_weights, 2 * owned) << stage;
      EXPECT_EQ(memory.optimizer_states, 8 * owned) << stage;
      if (stage == 0 || stage == 3) {
        EXPECT_EQ(memory.total(), 14 * owned);
      }
    }
    const Json on_disk = {{"offload_optimizer", {{"device", "nvme"}, {"nvme_path", folder.string()}}}};
    const OddEngine disk = make_engine(split_at_stage(3, on_disk), world);
    const OddEngine plain = make_engine(bf16_config(3, false, {{"zero_optimization", on_disk}}), world);
    for (const OddEngine& engine : {disk, plain}) train_step(*engine, world.rank());
    EXPECT_EQ(disk->memory().master_weights, 0);
    EXPECT_LE(disk->memory().on_disk, plain->memory().on_disk);
    EXPECT_LE(disk->memory().swap_buffers, plain->memory().swap_buffers);
  });
}

TEST(SplitMastersState, IsReadAndWrittenByParameter) {
  const TemporaryFolder folder;
  for (const int stage : {1, 2, 3}) {
    for (const Json& config : homes(stage, folder.string())) {
      run_ranks(2, [&](comm::World& world) {
        SCOPED_TRACE(config["zero_optimization"].dump());
        const OddEngine engine = make_engine(config, world);
        for (int step = 0; step < 2; ++step) train_step(*engine, 4 * step + 50 * world.rank());
        const at::Tensor param = engine->module().named_parameters()["shared.weight"];
        const at::Tensor other = engine->module().named_parameters()["first.weight"];
        const at::Tensor beside = safe_get_full_fp32_param(*engine, other);
        const at::Tensor values = at::linspace(-3, 3, param.numel()).view(param.sizes());
        safe_set_full_fp32_param(*engine, param, values);
        safe_set_full_optimizer_state(*engine, param, values, "exp_avg");
        EXPECT_TRUE(safe_get_full_fp32_param(*engine, param).equal(values));
        EXPECT_TRUE(safe_get_full_optimizer_state(*engine, param, "exp_avg").equal(values));
        EXPECT_TRUE(safe_get_full_fp32_param(*engine, other).equal(beside));
        {
          const zero::GatheredParameters gathered({param});
          expect_near({param.detach()}, {values}, 3.0 / 256, "the weight follows");
        }
        if (stage != 3) return;
        safe_set_local_fp32_param(*engine, param, safe_get_local_fp32_param(*engine, param).mul(2));
        EXPECT_TRUE(safe_get_full_fp32_param(*engine, param).equal(values.mul(2)));
        // The weight that somebody wrote is the master, without what was below it.
        {
          const zero::GatheredParameters gathered({param}, 0);
          const at::NoGradGuard no_grad;
          if (world.rank() == 0) param.copy_(values);
        }
        EXPECT_TRUE(safe_get_full_fp32_param(*engine, param).equal(values.to(at::kBFloat16).to(at::kFloat)));
        EXPECT_TRUE(std::isfinite(train_step(*engine, 30)));
      });
    }
  }
}

TEST(SplitMastersState, FollowsWeightsThatAreLoadedOrWritten) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2, 3}) {
      const OddEngine engine = make_engine(split_at_stage(stage), world);
      train_step(*engine, world.rank());
      std::vector<NamedTensor> state;
      for (const auto& item : engine->module().named_parameters())
        state.push_back({item.key(), at::full(item.value().sizes(), 0.3)});
      engine->load_module_state_dict(state, /*strict=*/false);
      const float rounded = at::full({}, 0.3).to(at::kBFloat16).item<float>();
      for (const at::Tensor& master : masters_of(engine))
        EXPECT_TRUE(master.eq(rounded).all().item<bool>()) << stage;
      train_step(*engine, world.rank());
      if (stage == 3) continue;
      // A zero that somebody writes beside old lower halves is no nan.
      const at::NoGradGuard no_grad;
      for (at::Tensor param : engine->module().parameters()) param.zero_();
      for (const at::Tensor& master : masters_of(engine))
        EXPECT_TRUE(master.abs().lt(1e-37).all().item<bool>()) << stage;
    }
  });
}

TEST(SplitMastersCheckpoint, ResumesWithAndWithoutBitForBit) {
  const TemporaryFolder swap;
  const Json disk = {{"offload_optimizer", {{"device", "nvme"}, {"nvme_path", swap.string()}}}};
  const auto train_steps = [](const OddEngine& engine, comm::World& world, int first, int count) {
    for (int step = first; step < first + count; ++step)
      train_step(*engine, 4 * (world.size() * step + world.rank()));
  };
  for (const int stage : {0, 1, 2, 3}) {
    run_ranks(2, [&](comm::World& world) {
      const Json plain = bf16_config(stage, false), split = split_at_stage(stage);
      // Another stage reads the files as well.
      const Json elsewhere = stage == 0 ? split : split_at_stage(stage == 3 ? 1 : 3, disk);
      for (const auto& [from, to] :
           {std::pair(split, split), {split, plain}, {plain, split}, {split, elsewhere}}) {
        SCOPED_TRACE(message(stage, " from ", from, " to ", to));
        const TemporaryFolder own;
        const std::string folder = world.group().broadcast_text(own.string(), 0);
        const OddEngine source = make_engine(from, world), target = make_engine(to, world);
        train_steps(source, world, 0, 3);
        source->save_checkpoint(folder);
        train_steps(target, world, 50, 2);
        target->load_checkpoint(folder);
        const auto masters = masters_of(source);
        ASSERT_FALSE(holds_a_half(masters)) << "the data must let weights be compared bit by bit";
        expect_near(masters_of(target), masters, 0, "masters");
        expect_near(weights_of(target), weights_of(source), 0, "weights");
        train_steps(source, world, 3, 1);
        train_steps(target, world, 3, 1);
        expect_near(masters_of(target), masters_of(source), 0, "a step later");
        world.group().barrier();
      }
    });
  }
}

TEST(SplitMastersCheckpoint, IsWrittenBesideTheTrainingToo) {
  run_ranks(2, [&](comm::World& world) {
    for (const int stage : {1, 3}) {
      const Json decoupled = {{"checkpoint", {{"writer", {{"type", "FAST"}, {"decoupled", true}}}}}};
      const OddEngine source = make_engine(bf16_config(stage, true, decoupled), world);
      const OddEngine target = make_engine(bf16_config(stage, false), world);
      for (int step = 0; step < 3; ++step) train_step(*source, 4 * (2 * step + world.rank()));
      const TemporaryFolder own;
      const std::string folder = world.group().broadcast_text(own.string(), 0);
      const auto masters = masters_of(source);
      source->save_checkpoint(folder);
      train_step(*source, 70 + world.rank());  // the file holds what was
      source->wait_for_checkpoint();
      target->load_checkpoint(folder);
      expect_near(masters_of(target), masters, 0, message("stage ", stage));
      world.group().barrier();
    }
  });
}

/// Masters in fp32 of one sub-group at a time, which is a tenth of the model here, and what makes them.
TEST(SplitMastersCheckpoint, TakesNoMemoryForFp32Masters) {
  const Json split = {{"split_master_weights", true}};
  const Json sixteen_bit = {{"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}};
  const TemporaryFolder swap;
  const Json half = {{"device", "nvme"}, {"nvme_path", swap.string()}, {"ratio", 0.2}};
  for (const auto& [masters, offload] : {std::pair(split, Json::object()),
                                         {sixteen_bit, Json::object()},
                                         {split, {{"offload_optimizer", half}}}}) {
    run_ranks(1, [&, masters = masters, offload = offload](comm::World& world) {
      Json config = basic({{"bf16", {{"enabled", true}}},
                           {"log_level", "error"},
                           {"zero_optimization", {{"stage", 3}, {"sub_group_size", 5000}}}});
      config["bf16"].update(masters);
      config["zero_optimization"].update(offload);
      auto model = std::make_shared<TinyGPT>(
          TinyGPTConfig{.vocabulary = 128, .context = 8, .width = 64, .layers = 2, .heads = 4});
      const auto engine = initialize(std::move(model), {.config = config, .world = world}).engine;
      const at::Tensor tokens = at::arange(16, at::kLong).mul(7).view({2, 8});
      engine->backward(engine->forward(tokens, tokens));
      engine->step();
      const TemporaryFolder folder;
      const AllocationCounter counter;
      engine->save_checkpoint(folder.string());
      const int64_t masters_bytes = 2 * engine->memory().parameters;
      EXPECT_GT(masters_bytes, 400'000);
      EXPECT_LT(3 * counter.peak_bytes(), 2 * masters_bytes) << config;
    });
  }
}

TEST(SplitMastersConfig, NamesTheOptimizersThatStepThem) {
  for (const Json& optimizer : std::vector<Json>{
           {{"type", "Lion"}, {"params", {{"lr", 0.01}}}},
           {{"type", "SGD"}, {"params", {{"lr", 0.01}}}},
           {{"type", "Adam"}, {"params", {{"lr", 0.01}, {"torch_adam", true}, {"amsgrad", true}}}}}) {
    Json config = split_at_stage(1, Json::object(), {{"zero_allow_untested_optimizer", true}});
    config["optimizer"] = optimizer;
    EXPECT_THAT(error_of<ConfigError>([&] { make_engine(config); }),
                AllOf(HasSubstr("bf16.split_master_weights: got true with"), HasSubstr("Adam or AdamW")))
        << optimizer;
  }
}

}  // namespace
}  // namespace deepspeed::testing
