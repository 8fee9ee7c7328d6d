// A program's own model parallel unit: its groups are those of gradients, norms and batch sizes.
#include "deepspeed/comm/mpu.h"

#include <cmath>
#include <filesystem>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <torch/data/datasets/base.h>
#include <torch/nn/module.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/functions.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

// Ranks 0 and 1 hold one copy together, 2 and 3 another.
class PairsOfRanks : public Mpu {
 public:
  explicit PairsOfRanks(int rank) {
    for (int pair = 0; pair < 2; ++pair) {
      const comm::ProcessGroup model = comm::new_group({2 * pair, 2 * pair + 1});
      if (rank / 2 == pair) model_ = model;
      const comm::ProcessGroup data = comm::new_group({pair, pair + 2});
      if (rank % 2 == pair) data_ = data;
    }
  }
  comm::ProcessGroup get_data_parallel_group() const override { return data_; }
  comm::ProcessGroup get_model_parallel_group() const override { return model_; }
  bool is_model_parallel_parameter(const at::Tensor& param) const override { return param.numel() == 3; }

 private:
  comm::ProcessGroup data_, model_;
};

// A part that each model-parallel rank has of its own, and a bias that both hold.
struct Part : torch::nn::Module {
  Part()
      : weight(register_parameter("weight", at::ones({3}))),
        bias(register_parameter("bias", at::ones({1}))) {}
  // The gradient of the weight is (factor, factor, factor), that of the bias `shared`.
  at::Tensor forward(const at::Tensor& factor, const at::Tensor& shared) {
    return (weight * factor).sum() + (bias * shared).sum();
  }
  at::Tensor weight, bias;
};

Json mpu_config(int stage) {
  return {{"train_micro_batch_size_per_gpu", 1},
          {"gradient_clipping", 0.5},
          {"zero_allow_untested_optimizer", true},
          {"zero_optimization", {{"stage", stage}}},
          {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 1.0}}}}}};
}

class MpuAtStage : public ::testing::TestWithParam<int> {};

TEST_P(MpuAtStage, AveragesOverItsDataRanksAndClipsByTheNormOfTheWholeModel) {
  run_ranks(4, [stage = GetParam()](comm::World& world) {
    const auto model = std::make_shared<Part>();
    const auto mpu = std::make_shared<PairsOfRanks>(world.rank());
    const auto engine = initialize(model, {.config = mpu_config(stage), .mpu = mpu}).engine;
    EXPECT_EQ(engine->dp_world_size(), 2);
    EXPECT_EQ(engine->config().train_batch_size, 2);
    EXPECT_EQ(engine->get_data_parallel_rank(), world.rank() / 2);
    EXPECT_EQ(engine->get_model_parallel_rank(), world.rank() % 2);
    // Ranks 0 to 3 have factors 1 to 4: the data ranks 0 and 2 average 2, 1 and 3 average 3.
    const at::Tensor factor = at::full({3}, world.rank() + 1.0), shared = at::full({1}, 2.0);
    engine->backward((*engine)(factor, shared));
    engine->step();
    const double norm = std::sqrt(3 * 4.0 + 3 * 9.0 + 4.0);
    EXPECT_NEAR(*engine->get_global_grad_norm(), norm, 1e-6);
    const zero::GatheredParameters gathered(model->parameters());
    const double own = world.rank() % 2 == 0 ? 2.0 : 3.0;
    EXPECT_NEAR(model->weight[0].item<double>(), 1 - own * 0.5 / norm, 1e-6);
    EXPECT_NEAR(model->bias[0].item<double>(), 1 - 2.0 * 0.5 / norm, 1e-6);
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, MpuAtStage, ::testing::Values(0, 1, 2, 3));

TEST(Mpu, SkipsAStepOnAllRanksIfOnePartOverflows) {
  run_ranks(4, [](comm::World& world) {
    const auto model = std::make_shared<Part>();
    Json config = mpu_config(1);
    config["fp16"] = {{"enabled", true}, {"initial_scale_power", 4}};
    const auto mpu = std::make_shared<PairsOfRanks>(world.rank());
    const auto engine = initialize(model, {.config = config, .mpu = mpu}).engine;
    const double infinity = std::numeric_limits<double>::infinity();
    const auto half = [](double value) { return at::full({3}, value, at::kHalf); };
    engine->backward((*engine)(half(world.rank() == 3 ? infinity : 1.0), half(2.0)));
    engine->step();
    EXPECT_FALSE(engine->was_step_applied());
    EXPECT_EQ(model->weight[0].item<double>(), 1.0);
  });
}

TEST(Mpu, CheckpointsHoldThePartsOfEachRank) {
  const TemporaryFolder folder;
  run_ranks(4, [&](comm::World& world) {
    const auto mpu = std::make_shared<PairsOfRanks>(world.rank());
    const auto make = [&](const std::shared_ptr<Part>& model) {
      return initialize(model, {.config = mpu_config(1), .mpu = mpu}).engine;
    };
    const at::Tensor factor = at::full({3}, world.rank() + 1.0), shared = at::full({1}, 2.0);
    const auto saved = std::make_shared<Part>(), loaded = std::make_shared<Part>();
    const auto engine = make(saved);
    engine->backward((*engine)(factor, shared));
    engine->step();
    engine->save_checkpoint(folder.path());
    EXPECT_FALSE(make(loaded)->load_checkpoint(folder.path()).path.empty());
    EXPECT_TRUE(loaded->weight.equal(saved->weight));
    EXPECT_TRUE(loaded->bias.equal(saved->bias));
    EXPECT_FALSE(loaded->weight.equal(at::ones({3})));
    for (const char* name : {"mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"})
      EXPECT_TRUE(std::filesystem::exists(folder.path() / "global_step1" / name)) << name;
  });
}

// Gives its own numbers.
struct TwelveNumbers : torch::data::datasets::Dataset<TwelveNumbers, torch::data::Example<>> {
  torch::data::Example<> get(size_t index) override {
    return {at::full({3}, double(index)), at::full({1}, double(index))};
  }
  std::optional<size_t> size() const override { return 12; }
};

TEST(Mpu, GivesRanksOfOneCopyTheSameData) {
  run_ranks(4, [](comm::World& world) {
    const auto mpu = std::make_shared<PairsOfRanks>(world.rank());
    const auto loader =
        initialize(std::make_shared<Part>(), TwelveNumbers(), {.config = mpu_config(1), .mpu = mpu})
            .training_dataloader;
    std::vector<double> seen;
    for (const auto& batch : *loader) seen.push_back(batch.target.item<double>());
    ASSERT_EQ(seen.size(), 6U);
    const at::Tensor own = at::tensor(seen, at::kDouble), all = at::empty({24}, at::kDouble);
    world.group().all_gather(all, own);
    EXPECT_TRUE(all.slice(0, 0, 6).equal(all.slice(0, 6, 12)));     // ranks 0 and 1
    EXPECT_TRUE(all.slice(0, 12, 18).equal(all.slice(0, 18, 24)));  // ranks 2 and 3
    const at::Tensor of_both = at::cat({all.slice(0, 0, 6), all.slice(0, 12, 18)});
    EXPECT_TRUE(std::get<0>(of_both.sort()).equal(at::arange(12, at::kDouble)));
  });
}

TEST(Mpu, RefusesGroupsThatDoNotFillTheWorld) {
  struct Whole : PairsOfRanks {
    using PairsOfRanks::PairsOfRanks;
    comm::ProcessGroup get_model_parallel_group() const override { return comm::get_world_group(); }
  };
  run_ranks(4, [](comm::World& world) {
    const auto mpu = std::make_shared<Whole>(world.rank());
    EXPECT_TRUE(throws_error<UsageError>(
        [&] { initialize(std::make_shared<Part>(), {.config = mpu_config(0), .mpu = mpu}); },
        {"mpu: got a data-parallel group of 2 ranks and a model-parallel one of 4, expected a product of "
         "4"}));
  });
}

}  // namespace
}  // namespace deepspeed::testing
