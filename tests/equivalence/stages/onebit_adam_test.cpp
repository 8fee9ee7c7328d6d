// 1-bit Adam: its warm-up is Adam, its exchange is small, and its training ends where Adam's does.
#include <gtest/gtest.h>

#include "tests/equivalence/stages/zeropp_net.h"
#include "tests/support/counted_world.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

Json with_optimizer(const char* type, const Json& params, int stage, const Json& patch = Json::object()) {
  Json config = {{"train_micro_batch_size_per_gpu", 4},
                 {"zero_optimization", {{"stage", stage}}},
                 {"optimizer", {{"type", type}, {"params", {{"lr", 0.003}, {"weight_decay", 0.01}}}}}};
  config["optimizer"]["params"].update(params);
  config.merge_patch(patch);
  return config;
}

Json onebit(int freeze_step, int stage, const Json& patch = Json::object()) {
  return with_optimizer("OneBitAdam", {{"freeze_step", freeze_step}}, stage, patch);
}

Json plain_adam(int stage, Json patch = Json::object()) {
  patch["gradient_clipping"] = 0.0;
  return with_optimizer("Adam", {{"bias_correction", false}}, stage, patch);
}

const std::vector<Json>& exchange_precisions() {
  static const std::vector<Json> all = {
      Json::object(),
      {{"bf16", {{"enabled", true}}}},
      {{"gradient_accumulation_steps", 2}, {"zero_optimization", {{"overlap_comm", true}}}}};
  return all;
}

at::Tensor weights_after(const Json& config, const comm::World& world, int steps) {
  const auto engine = zeropp_engine(config, world);
  train_zeropp(*engine, steps);
  return at::cat({engine->module().up.detach().view({-1}), engine->module().bias.detach()}).clone();
}

TEST(OneBitAdam, WarmsUpAsAdamBitForBit) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1}) {
      for (const Json& precision : exchange_precisions()) {
        const at::Tensor expected = weights_after(plain_adam(stage, precision), world, 6);
        const at::Tensor warm = weights_after(onebit(6, stage, precision), world, 6);
        EXPECT_TRUE(warm.equal(expected))
            << "stage " << stage << " " << precision << " " << (warm - expected).abs().max();
        EXPECT_FALSE(weights_after(onebit(2, stage, precision), world, 6).equal(expected));
      }
    }
  });
}

TEST(OneBitAdam, IsTheSameAtStagesZeroAndOne) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [](comm::World& world) {
      for (const Json& precision : exchange_precisions()) {
        const at::Tensor plain = weights_after(onebit(3, 0, precision), world, 12);
        EXPECT_TRUE(weights_after(onebit(3, 1, precision), world, 12).equal(plain)) << precision;
        at::Tensor first = plain.clone();
        if (world.size() > 1) world.group().broadcast(first, 0);
        EXPECT_TRUE(first.equal(plain)) << "ranks have other weights";
      }
    });
  }
}

TEST(OneBitAdam, IsAdamWithFrozenMomentsOnOneRank) {
  run_ranks(1, [](comm::World& world) {
    const auto engine = zeropp_engine(onebit(2, 0), world);
    train_zeropp(*engine, 2);
    const at::Tensor second = engine->optimizer()->state().of(0).state.tensors[1].second.clone();
    const at::Tensor first = engine->optimizer()->state().of(0).state.tensors[0].second.clone();
    train_zeropp(*engine, 1);
    const auto after = engine->optimizer()->state().of(0).state;
    EXPECT_TRUE(after.tensors[1].second.equal(second)) << "the second moment changed";
    EXPECT_FALSE(after.tensors[0].second.equal(first));
    EXPECT_EQ(after.step, 3);
  });
}

TEST(OneBitAdam, TrainsToTheLossOfAdam) {
  run_ranks(2, [](comm::World& world) {
    for (const Json& patch :
         {Json::object(), Json({{"fp16", {{"enabled", true}, {"initial_scale_power", 24}}}})}) {
      const double first = train_zeropp(*zeropp_engine(plain_adam(0, patch), world), 1);
      const double plain = train_zeropp(*zeropp_engine(plain_adam(0, patch), world), 80);
      const double compressed = train_zeropp(*zeropp_engine(onebit(25, 0, patch), world), 80);
      EXPECT_LT(plain, 0.5 * first);
      EXPECT_NEAR(compressed, plain, 0.05 * first);
    }
  });
}

TEST(OneBitAdam, SendsAFewHundredthsOfTheBytes) {
  run_ranks(2, [](comm::World& world) {
    const auto notes = std::make_shared<CallNotes>();
    const auto engine = zeropp_engine(onebit(2, 0), counted_world(world, notes));
    const auto bytes_of_step = [&] {
      notes->clear();
      train_zeropp(*engine, 1);
      int64_t bytes = 0;
      for (const NotedCall& call : *notes)
        bytes += call.collective == "all_reduce" ? 2 * call.bytes : call.bytes;
      return double(bytes);
    };
    const double warm = bytes_of_step();
    EXPECT_EQ(bytes_of_step(), warm);
    const double compressed = bytes_of_step();
    EXPECT_GT(warm, 2 * 4 * 2 * kRowsOfNet * kColumnsOfNet);
    // What is left beside the bits is the bias, and the ends of blocks.
    EXPECT_LT(compressed, 0.06 * warm);
  });
}

TEST(OneBitAdam, ResumesBeforeAndAfterTheFreezeAlsoOnOtherRanks) {
  for (const int stage : {0, 1}) {
    for (const int saved_at : {2, 6}) {
      const TemporaryFolder folder;
      run_ranks(2, [&](comm::World& world) {
        const auto first = zeropp_engine(onebit(4, stage), world);
        train_zeropp(*first, saved_at);
        first->save_checkpoint(folder.path());
        // The errors of earlier exchanges are forgotten with a load, as DeepSpeed does.
        first->load_checkpoint(folder.path());
        const double expected = train_zeropp(*first, 6);
        const auto second = zeropp_engine(onebit(4, stage), world);
        second->load_checkpoint(folder.path());
        EXPECT_EQ(train_zeropp(*second, 6), expected);
      });
      if (stage == 0) continue;
      run_ranks(4, [&](comm::World& world) {
        const auto engine = zeropp_engine(onebit(4, stage), world);
        engine->load_checkpoint(folder.path());
        EXPECT_TRUE(std::isfinite(train_zeropp(*engine, 4)));
      });
    }
  }
}

TEST(OneBitAdam, RefusesWhatDoesNotFitItByTheKey) {
  run_ranks(2, [](comm::World& world) {
    const auto refuses = [&](const Json& config, const std::vector<std::string>& texts) {
      EXPECT_TRUE(throws_error<ConfigError>([&] { zeropp_engine(config, world); }, texts));
    };
    refuses(onebit(4, 2), {"zero_optimization.stage: got 2", "OneBitAdam"});
    refuses(onebit(4, 0, {{"gradient_clipping", 1.0}}), {"gradient_clipping: got 1"});
    refuses(onebit(4, 1, {{"zero_optimization", {{"offload_optimizer", {{"device", "cpu"}}}}}}),
            {"offload_optimizer.device"});
    refuses(onebit(4, 0, {{"gradient_allreduce_op", "sum"}}), {"gradient_allreduce_op"});
    refuses(onebit(-1, 0), {"freeze_step"});
  });
}

}  // namespace
}  // namespace deepspeed::testing
