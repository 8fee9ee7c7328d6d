// MiCS: shards within blocks of ranks, and what a training becomes beside plain stage 3 and stage 0.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/update/grad_norm.h"

#include "tests/equivalence/stages/stage3_config.h"
#include "tests/support/error_of.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/training_run.h"

namespace deepspeed::testing {
namespace {

Json mics(int shard_size, const Json& patch = Json::object()) {
  Json config = at_stage(3, patch);
  if (shard_size > 0) config["zero_optimization"]["mics_shard_size"] = shard_size;
  return config;
}

TrainingResult trained_in_blocks(int ranks, const Json& config, int64_t accumulation = 1,
                                 bool direct_backward = false) {
  return run_training({.world_size = ranks,
                       .accumulation = accumulation,
                       .direct_backward = direct_backward,
                       .config = config});
}

const std::vector<std::pair<int, int>> kWorldsAndShards = {{2, 1}, {2, 2}, {4, 1}, {4, 2}, {4, 4}};

// Shards of one rank are whole, and their replicas add up as all ranks of stage 0 do.
TEST(Mics, IsBitEqualIfSumsHaveOneOrder) {
  for (const int ranks : {2, 4}) {
    const TrainingResult plain = trained_in_blocks(ranks, mics(0));
    ASSERT_FALSE(plain.weights.empty());
    for (const int shard_size : {1, ranks}) {
      for (const bool overlap : {false, true}) {
        const Json config = mics(shard_size, zero_options({{"overlap_comm", overlap}}));
        const TrainingResult result = trained_in_blocks(ranks, config);
        EXPECT_EQ(result.weights, plain.weights) << shard_size << " of " << ranks;
        EXPECT_EQ(result.losses, plain.losses) << shard_size << " of " << ranks;
      }
    }
    const TrainingResult stage0 = trained_in_blocks(ranks, at_stage(0), 3);
    const TrainingResult single = trained_in_blocks(ranks, mics(1), 3);
    EXPECT_EQ(single.weights, stage0.weights) << ranks;
    EXPECT_EQ(single.losses, stage0.losses) << ranks;
  }
}

TEST(Mics, DiffersOnlyInTheOrderOfSums) {
  const std::vector<Json> variants = {
      Json::object(),
      {{"gradient_clipping", 0.05}},
      zero_options({{"reduce_scatter", false}}),
      zero_options({{"contiguous_gradients", false}}),
      zero_options({{"sub_group_size", 50}}),
  };
  for (const Json& variant : variants) {
    for (const int64_t accumulation : {1, 2}) {
      const TrainingResult plain = trained_in_blocks(4, mics(0, variant), accumulation);
      ASSERT_FALSE(plain.weights.empty());
      for (const int shard_size : {1, 2, 4}) {
        const TrainingResult result = trained_in_blocks(4, mics(shard_size, variant), accumulation);
        EXPECT_LT(largest_relative_difference(result.weights, plain.weights, 1e-3), 2e-4)
            << variant << ", " << shard_size;
        EXPECT_LT(largest_relative_difference(result.norms, plain.norms), 1e-5)
            << variant << ", " << shard_size;
      }
    }
  }
}

// The iteration of Muon enlarges the rounding of small singular values.
TEST(Mics, StepsWholeMatricesOfABlock) {
  const Json muon = {{"optimizer", {{"type", "Muon"}, {"params", {{"lr", 0.01}}}}},
                     {"zero_allow_untested_optimizer", true}};
  const TrainingResult plain = trained_in_blocks(4, mics(0, muon));
  ASSERT_FALSE(plain.weights.empty());
  for (const int shard_size : {1, 2, 4}) {
    const TrainingResult result = trained_in_blocks(4, mics(shard_size, muon));
    EXPECT_LT(largest_relative_difference(result.weights, plain.weights, 1e-2), 1e-3) << shard_size;
  }
}

TEST(Mics, TrainsThreeRanksAndSixInBlocks) {
  for (const auto& [ranks, shard_size] : {std::pair(3, 1), {6, 2}, {6, 3}}) {
    const TrainingResult plain = trained_in_blocks(ranks, mics(0), 2);
    const TrainingResult result = trained_in_blocks(ranks, mics(shard_size), 2);
    ASSERT_FALSE(plain.weights.empty());
    EXPECT_LT(largest_relative_difference(result.weights, plain.weights, 1e-3), 2e-4)
        << shard_size << " of " << ranks;
  }
}

double mean_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t index = 0; index < a.size(); ++index) sum += std::abs(double(a[index]) - b[index]);
  return sum / double(a.size());
}

// Where a gradient is about nothing, its rounding decides on the sign of a step of Adam: of the 0.01 that
// each of six steps may go, the mean of all weights shows little.
TEST(Mics, StaysNearPlainStage3InSixteenBits) {
  const std::vector<Json> precisions = {
      {{"bf16", {{"enabled", true}}}},
      {{"bf16", {{"enabled", true}}}, {"communication_data_type", "fp32"}},
      {{"bf16", {{"enabled", true}}}, {"data_types", {{"grad_accum_dtype", "fp32"}}}},
      {{"fp16", {{"enabled", true}, {"initial_scale_power", 8}}}},
      {{"communication_data_type", "bf16"}},
  };
  for (const Json& precision : precisions) {
    const TrainingResult plain = trained_in_blocks(4, mics(0, precision), 2);
    ASSERT_FALSE(plain.weights.empty());
    for (const int shard_size : {1, 2, 4}) {
      const TrainingResult result = trained_in_blocks(4, mics(shard_size, precision), 2);
      ASSERT_EQ(result.losses.size(), plain.losses.size());
      for (size_t step = 0; step < plain.losses.size(); ++step)
        EXPECT_NEAR(result.losses[step], plain.losses[step], 0.02 * plain.losses[step]) << precision;
      EXPECT_LT(mean_difference(result.weights, plain.weights), 0.004) << precision << ", " << shard_size;
    }
  }
}

TEST(Mics, IsBitEqualIfStatesAndParametersAreOffloaded) {
  const TemporaryFolder folder;
  const Json cpu = {{"device", "cpu"}};
  const Json nvme = {{"device", "nvme"}, {"nvme_path", folder.string()}};
  const std::vector<Json> homes = {{{"offload_optimizer", cpu}},
                                   {{"offload_param", cpu}},
                                   {{"offload_optimizer", nvme}, {"offload_param", nvme}}};
  for (const int shard_size : {1, 2}) {
    const TrainingResult on_device = trained_in_blocks(4, mics(shard_size), 2);
    ASSERT_FALSE(on_device.weights.empty());
    for (const Json& home : homes) {
      const TrainingResult result = trained_in_blocks(4, mics(shard_size, zero_options(home)), 2);
      EXPECT_EQ(result.weights, on_device.weights) << home << ", " << shard_size;
    }
  }
}

TEST(Mics, TakesDirectBackwardsAndUnmanagedAccumulation) {
  for (const int shard_size : {1, 2}) {
    const TrainingResult driven = trained_in_blocks(4, mics(shard_size), 2);
    EXPECT_EQ(trained_in_blocks(4, mics(shard_size), 2, true).weights, driven.weights);
  }
  // Whoever calls step() only once a window says when it ends.
  run_ranks(4, [](comm::World& world) {
    const auto weights_of = [&](int shard_size, bool is_managed) {
      Json config = mics(shard_size, {{"train_micro_batch_size_per_gpu", 4},
                                      {"gradient_clipping", 0.0},
                                      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}}});
      if (is_managed) {
        config["gradient_accumulation_steps"] = 2;
      } else {
        config["managed_gradient_accumulation"] = false;
      }
      const auto engine = initialize(std::make_shared<OddNet>(), {.config = config, .world = world}).engine;
      for (int step = 0; step < 2; ++step) {
        for (int micro_step = 0; micro_step < 2; ++micro_step) {
          const auto [inputs, targets] = odd_batch(40 * step + 20 * micro_step + 4 * world.rank(), 4);
          const at::Tensor loss = engine->forward(inputs, targets);
          engine->backward(is_managed ? loss : loss / 2);
          if (is_managed || micro_step == 1) engine->step();
        }
      }
      std::vector<at::Tensor> weights;
      const zero::GatheredParameters gathered(engine->module().parameters());
      for (const auto& param : engine->module().parameters()) weights.push_back(param.detach().clone());
      return weights;
    };
    for (const int shard_size : {1, 2}) {
      const auto managed = weights_of(shard_size, true), unmanaged = weights_of(shard_size, false);
      for (size_t index = 0; index < managed.size(); ++index)
        EXPECT_TRUE(at::allclose(managed[index], unmanaged[index], 1e-5, 1e-6)) << shard_size;
    }
  });
}

/// One matrix whose gradient is its input, in whole numbers: sums have no rounding, whatever their order.
struct ExactNet : torch::nn::Module {
  ExactNet() { weight = register_parameter("weight", at::zeros({7, 5})); }
  at::Tensor forward(const at::Tensor& x) { return (x * weight).sum(); }
  at::Tensor weight;
};

at::Tensor exact_batch(int step, int rank) {
  return (at::arange(35, at::kFloat) * (1 + rank) + step).view({7, 5}).remainder(16);
}

TEST(Mics, IsBitEqualIfSumsAreExact) {
  run_ranks(4, [](comm::World& world) {
    const auto weights_of = [&](const Json& config) {
      const auto engine = initialize(std::make_shared<ExactNet>(), {.config = config, .world = world}).engine;
      for (int step = 0; step < 8; ++step) {
        engine->backward(engine->forward(exact_batch(step, world.rank())));
        engine->step();
      }
      const zero::GatheredParameters gathered({engine->module().weight});
      return engine->module().weight.detach().clone();
    };
    for (const int accumulation : {1, 4}) {
      for (const double clipping : {0.0, 0.5}) {
        const Json patch = {{"train_micro_batch_size_per_gpu", 1},
                            {"gradient_accumulation_steps", accumulation},
                            {"gradient_clipping", clipping},
                            {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.01}}}}}};
        const at::Tensor plain = weights_of(mics(0, patch));
        EXPECT_FALSE(plain.equal(at::zeros_like(plain)));
        for (const int shard_size : {1, 2, 4})
          EXPECT_TRUE(weights_of(mics(shard_size, patch)).equal(plain)) << shard_size << patch;
      }
    }
  });
}

TEST(Mics, AgreesOnAnOverflowOfOneRankOfOneReplica) {
  run_ranks(4, [](comm::World& world) {
    for (const int shard_size : {1, 2}) {
      const Json config = mics(shard_size, {{"train_micro_batch_size_per_gpu", 1},
                                            {"log_level", "warning"},  // an earlier test may have set another
                                            {"fp16", {{"enabled", true}, {"initial_scale_power", 4}}},
                                            {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.01}}}}}});
      const auto engine = initialize(std::make_shared<ExactNet>(), {.config = config, .world = world}).engine;
      const auto step = [&](double factor) {
        engine->backward(engine->forward((exact_batch(0, world.rank()) * factor).to(at::kHalf)));
        engine->step();
      };
      step(1.0);
      EXPECT_TRUE(engine->was_step_applied());
      ::testing::internal::CaptureStderr();
      step(world.rank() == 3 ? std::numeric_limits<double>::infinity() : 1.0);
      const std::string log = ::testing::internal::GetCapturedStderr();
      if (world.rank() == 0) {
        EXPECT_THAT(log, ::testing::HasSubstr("'weight' is not finite on rank 3"));
      }
      EXPECT_FALSE(engine->was_step_applied());
      EXPECT_EQ(engine->skipped_steps(), 1);
      step(1.0);
      EXPECT_TRUE(engine->was_step_applied());
      const at::Tensor master = safe_get_full_fp32_param(*engine, engine->module().weight);
      const at::Tensor of_rank_0 = master.clone();
      world.group().broadcast(of_rank_0, 0);
      EXPECT_TRUE(master.equal(of_rank_0));
    }
  });
}

TEST(Mics, ShowsAndTakesWholeValuesOnAllRanks) {
  run_ranks(4, [](comm::World& world) {
    for (const int shard_size : {1, 2}) {
      const Json config = mics(shard_size, {{"train_micro_batch_size_per_gpu", 1},
                                            {"gradient_clipping", 0.0},
                                            {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.01}}}}}});
      const auto engine = initialize(std::make_shared<ExactNet>(), {.config = config, .world = world}).engine;
      at::Tensor& weight = engine->module().weight;
      {
        const zero::GatheredParameters gathered({weight}, 3);  // the last rank, which is of another block
        const c10::NoGradGuard no_grad;
        if (world.rank() == 3) weight.fill_(0.25);
      }
      EXPECT_TRUE(safe_get_full_fp32_param(*engine, weight).equal(at::full({7, 5}, 0.25)));
      engine->backward(engine->forward(exact_batch(0, world.rank())));
      at::Tensor mean = at::zeros({7, 5});
      for (int rank = 0; rank < 4; ++rank) mean.add_(exact_batch(0, rank) / 4);
      EXPECT_TRUE(safe_get_full_grad(*engine, weight).equal(mean));
      engine->step();
      EXPECT_EQ(engine->get_global_grad_norm().value(), mean.to(at::kDouble).norm().item<double>());
      EXPECT_TRUE(at::allclose(safe_get_full_optimizer_state(*engine, weight, "exp_avg"), mean * 0.1));
      safe_set_full_fp32_param(*engine, weight, mean);
      const zero::GatheredParameters gathered({weight});
      EXPECT_TRUE(weight.equal(mean));
      EXPECT_ERROR(UsageError, zero::GatheredParameters({weight}, 4), "modifier_rank 4, expected 0 to 3");
    }
  });
}

TEST(Mics, RefusesWhatContradictsIt) {
  run_ranks(4, [](comm::World& world) {
    const auto refuses = [&](int shard_size, const Json& zero, const std::vector<std::string>& parts) {
      Json config = mics(shard_size, zero_options(zero));
      config["train_micro_batch_size_per_gpu"] = 1;
      config["optimizer"] = {{"type", "Adam"}};
      EXPECT_TRUE(throws_error<ConfigError>(
          [&] { initialize(std::make_shared<ExactNet>(), {.config = config, .world = world}); }, parts));
    };
    refuses(3, {{"stage", 3}}, {"mics_shard_size: got 3", "a divisor of 4"});
    refuses(8, {{"stage", 3}}, {"mics_shard_size: got 8", "a divisor of 4"});
    refuses(2, {{"stage", 2}}, {"mics_shard_size: got 2 at stage 2", "stage 3"});
    refuses(2, {{"zero_hpz_partition_size", 2}}, {"mics_shard_size: got 2", "zero_hpz_partition_size 2"});
    refuses(2, {{"zero_quantized_gradients", true}}, {"mics_shard_size: got 2", "zero_quantized_gradients"});
    refuses(2, {{"offload_optimizer", {{"device", "cpu"}, {"super_offload", true}}}},
            {"mics_shard_size: got 2", "offload_optimizer.super_offload"});
    refuses(4, {{"mics_hierarchical_params_gather", true}, {"stage3_use_all_reduce_for_fetch_params", true}},
            {"mics_hierarchical_params_gather: got true", "stage3_use_all_reduce_for_fetch_params"});
  });
}

TEST(Mics, NeedsNoReplicasWithAllRanks) {
  run_ranks(2, [](comm::World& world) {
    const Json config = mics(2, {{"train_micro_batch_size_per_gpu", 1}, {"optimizer", {{"type", "Adam"}}}});
    const auto engine = initialize(std::make_shared<ExactNet>(), {.config = config, .world = world}).engine;
    EXPECT_EQ(engine->config().zero_optimization.mics_shard_size, 2);
    EXPECT_FALSE(engine->optimizer()->ranks().has_replicas());
  });
}

}  // namespace
}  // namespace deepspeed::testing
