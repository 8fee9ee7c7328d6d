// ZeRO++'s quantized gathers: what is sent, which values passes see, and what stays exact.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/initialize.h"
#include "deepspeed/kernels/block_quantization.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "tests/equivalence/stages/zeropp_net.h"
#include "tests/support/counted_world.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

const std::vector<Json>& net_precisions() {
  static const std::vector<Json> all = {Json::object(),
                                        {{"bf16", {{"enabled", true}}}},
                                        {{"zero_optimization", {{"offload_param", {{"device", "cpu"}}}}}}};
  return all;
}

TEST(QuantizedWeights, AreRoundedEquallyForPassesAndExactElsewhere) {
  for (const int ranks : {2, 3}) {
    for (const Json& precision : net_precisions()) {
      run_ranks(ranks, [&](comm::World& world) {
        const auto engine =
            zeropp_engine(zeropp_config({{"zero_quantized_weights", true}}, precision), world);
        ZeroppNet& model = engine->module();
        const ZeroppNet plain;
        const auto dtype = precision.contains("bf16") ? at::kBFloat16 : at::kFloat;
        const at::Tensor exact = plain.up.detach().to(dtype);
        engine->forward(zeropp_batch(0, world.rank()).to(dtype));
        const at::Tensor error = (model.seen_up - exact).to(at::kFloat).abs();
        EXPECT_GT(error.max().item<double>(), 0.0);
        // In bf16 the value is rounded once more.
        EXPECT_LE(error.max().item<double>(), 0.1 / 128 * 1.0001 + (dtype == at::kFloat ? 0.0 : 0.1 / 512));
        EXPECT_TRUE(model.seen_bias.equal(plain.bias.detach().to(dtype))) << "a small parameter";
        at::Tensor largest = model.seen_up.to(at::kFloat).clone(), least = -largest;
        world.group().all_reduce(largest, comm::ReduceOp::kMax);
        world.group().all_reduce(least, comm::ReduceOp::kMax);
        EXPECT_TRUE(largest.equal(-least)) << "ranks see other values";
        const zero::GatheredParameters gathered({model.up, model.down});
        EXPECT_TRUE(model.up.equal(exact));
      });
    }
  }
}

TEST(QuantizedWeights, AreTheNearestFloatsInFp8) {
  run_ranks(2, [&](comm::World& world) {
    const Json keys = {{"zero_quantized_weights", true}, {"zero_quantized_weights_dtype", "fp8"}};
    const auto engine = zeropp_engine(zeropp_config(keys), world);
    ZeroppNet& model = engine->module();
    const at::Tensor exact = ZeroppNet().up.detach();
    engine->forward(zeropp_batch(0, world.rank()));
    const at::Tensor error = (model.seen_up - exact).abs();
    EXPECT_GT(error.max().item<double>(), 0.0);
    const at::Tensor bound = at::maximum(exact.abs() / 16, exact.abs().max() / (448.0 * 1024));
    EXPECT_TRUE((error <= bound * 1.0001).all().item<bool>());
    const at::Tensor rounded = model.seen_up.clone();
    world.group().broadcast(rounded, 0);
    EXPECT_TRUE(rounded.equal(model.seen_up)) << "ranks see other values";
    EXPECT_LT(train_zeropp(*engine, 40), 0.1 * train_zeropp(*zeropp_engine(zeropp_config(keys), world), 1));
  });
}

TEST(QuantizedWeights, WritesUnderGatheredParametersLoseNothing) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = zeropp_engine(zeropp_config({{"zero_quantized_weights", true}}), world);
    ZeroppNet& model = engine->module();
    engine->forward(zeropp_batch(0, world.rank()));
    {
      const zero::GatheredParameters gathered({model.up}, 0);
      const c10::NoGradGuard no_grad;
      if (world.rank() == 0) model.up[0].fill_(0.75);
    }
    const zero::GatheredParameters gathered({model.up});
    at::Tensor expected = ZeroppNet().up.detach().clone();
    expected[0].fill_(0.75);
    EXPECT_TRUE(model.up.equal(expected));
  });
}

TEST(QuantizedWeights, SendAQuarterOfTheBytesOfFp32) {
  run_ranks(2, [](comm::World& world) {
    const auto bytes_of = [&](bool quantized) {
      const auto notes = std::make_shared<CallNotes>();
      const auto engine =
          zeropp_engine(zeropp_config({{"zero_quantized_weights", quantized}}), counted_world(world, notes));
      engine->eval();
      const c10::NoGradGuard no_grad;
      notes->clear();
      engine->forward(zeropp_batch(0, world.rank()));
      int64_t bytes = 0;
      for (const NotedCall& call : *notes) {
        if (call.collective == "all_gather") bytes += call.bytes;
      }
      return bytes;
    };
    const int64_t plain = bytes_of(false), quantized = bytes_of(true);
    EXPECT_EQ(quantized - kColumnsOfNet * 4,
              2 * 2 * kernels::quantized_bytes(kRowsOfNet * kColumnsOfNet / 2, kernels::BlockCode::kInt8));
    EXPECT_LT(quantized, 0.27 * plain);
  });
}

TEST(QuantizedWeights, SmallMatricesAreRoundedTooAndSmallVectorsAreNot) {
  run_ranks(2, [](comm::World& world) {
    const auto notes = std::make_shared<CallNotes>();
    const Json keys = {{"zero_quantized_weights", true}, {"stage3_param_persistence_threshold", 1'000'000}};
    const auto engine = zeropp_engine(zeropp_config(keys), counted_world(world, notes));
    ZeroppNet& model = engine->module();
    train_zeropp(*engine, 2);
    const auto gathered_bytes = [&] {
      notes->clear();
      engine->forward(zeropp_batch(2, world.rank()));
      int64_t bytes = 0;
      for (const NotedCall& call : *notes) bytes += call.collective == "all_gather" ? call.bytes : 0;
      return bytes;
    };
    const int64_t matrix =
        kernels::quantized_bytes(kRowsOfNet * kColumnsOfNet / 2, kernels::BlockCode::kInt8);
    EXPECT_EQ(gathered_bytes(), 2 * 2 * matrix + kColumnsOfNet * 4);
    EXPECT_EQ(gathered_bytes(), 0) << "they stay until the next step";
    const at::Tensor seen = model.seen_up.clone(), seen_bias = model.seen_bias.clone();
    const zero::GatheredParameters gathered({model.up, model.bias});
    EXPECT_TRUE(model.bias.equal(seen_bias));
    const at::Tensor error = (model.up - seen).abs();
    EXPECT_GT(error.max().item<double>(), 0.0);
    EXPECT_LE(error.max().item<double>(), model.up.abs().max().item<double>() / 128 * 1.0001);
  });
}

TEST(QuantizedWeights, TrainToTheLossOfExactOnes) {
  for (const Json& precision : net_precisions()) {
    if (precision.contains("bf16")) continue;
    run_ranks(2, [&](comm::World& world) {
      const double first = train_zeropp(*zeropp_engine(zeropp_config(Json::object(), precision), world), 1);
      const double exact = train_zeropp(*zeropp_engine(zeropp_config(Json::object(), precision), world), 40);
      const double rounded = train_zeropp(
          *zeropp_engine(zeropp_config({{"zero_quantized_weights", true}}, precision), world), 40);
      EXPECT_LT(exact, 0.1 * first);
      EXPECT_NEAR(rounded, exact, 0.01 * first);
    });
  }
}

TEST(QuantizedWeights, ResumeBitEqually) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto first = zeropp_engine(zeropp_config({{"zero_quantized_weights", true}}), world);
    train_zeropp(*first, 3);
    first->save_checkpoint(folder.path());
    const double expected = train_zeropp(*first, 3);
    const auto second = zeropp_engine(zeropp_config({{"zero_quantized_weights", true}}), world);
    second->load_checkpoint(folder.path());
    EXPECT_EQ(train_zeropp(*second, 3), expected);
  });
}

TEST(QuantizedWeights, AreGivenBackAsTheyAre) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = zeropp_engine(zeropp_config({{"zero_quantized_weights", true}}), world);
    engine->forward(zeropp_batch(0, world.rank()));
    engine->destroy();
    EXPECT_TRUE(engine->module().up.equal(ZeroppNet().up.detach()));
  });
}

}  // namespace
}  // namespace deepspeed::testing
