// ZeRO++'s quantized gathers: what is sent, which values passes see, and what stays exact.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/initialize.h"
#include "deepspeed/kernels/block_quantization.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "tests/support/counted_world.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

constexpr int64_t kColumnsOfNet = 96,
                  kRowsOfNet = 65;  // 6240 elements, which two and three ranks do not cut evenly

struct RoundedNet : torch::nn::Module {
  RoundedNet() {
    const auto fill = [](int64_t rows, int64_t columns, double offset) {
      return (at::arange(rows * columns) * 0.37 + offset).sin().mul(0.1).to(at::kFloat).view({rows, columns});
    };
    up = register_parameter("up", fill(kRowsOfNet, kColumnsOfNet, 0.0));
    down = register_parameter("down", fill(kColumnsOfNet, kRowsOfNet, 0.5));
    bias = register_parameter("bias", at::full({kColumnsOfNet}, 0.123456789F));
  }
  at::Tensor forward(const at::Tensor& x) {
    seen_up = up.detach() * 1;
    seen_bias = bias.detach() * 1;
    const at::Tensor y = at::matmul(at::tanh(at::matmul(x, up.t())), down.t()) + bias;
    return (y - x).square().mean();
  }
  at::Tensor up, down, bias, seen_up, seen_bias;
};

Json config_with(bool quantized, const Json& patch = Json::object()) {
  Json config = {
      {"train_micro_batch_size_per_gpu", 4},
      {"zero_optimization",
       {{"stage", 3}, {"stage3_param_persistence_threshold", 100}, {"zero_quantized_weights", quantized}}},
      {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.01}}}}}};
  config.merge_patch(patch);
  return config;
}

at::Tensor batch(int step, int rank) {
  return (at::arange(4 * kColumnsOfNet) * 0.21 + double(7 * step + rank))
      .cos()
      .to(at::kFloat)
      .view({4, kColumnsOfNet});
}

auto engine_with(const Json& config, const comm::World& world) {
  return initialize(std::make_shared<RoundedNet>(), {.config = config, .world = world}).engine;
}

double train(auto& engine, int steps) {
  double loss = 0;
  for (int step = 0; step < steps; ++step) {
    const at::Tensor value = engine.forward(batch(step, engine.rank()));
    engine.backward(value);
    engine.step();
    loss = value.template item<double>();
  }
  return loss;
}

const std::vector<Json>& net_precisions() {
  static const std::vector<Json> all = {Json::object(),
                                        {{"bf16", {{"enabled", true}}}},
                                        {{"zero_optimization", {{"offload_param", {{"device", "cpu"}}}}}}};
  return all;
}

TEST(QuantizedWeights, AreRoundedAlikeForPassesAndExactElsewhere) {
  for (const int ranks : {2, 3}) {
    for (const Json& precision : net_precisions()) {
      run_ranks(ranks, [&](comm::World& world) {
        const auto engine = engine_with(config_with(true, precision), world);
        RoundedNet& model = engine->module();
        const RoundedNet plain;
        const auto dtype = precision.contains("bf16") ? at::kBFloat16 : at::kFloat;
        const at::Tensor exact = plain.up.detach().to(dtype);
        engine->forward(batch(0, world.rank()).to(dtype));
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

TEST(QuantizedWeights, WritesUnderGatheredParametersLoseNothing) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = engine_with(config_with(true), world);
    RoundedNet& model = engine->module();
    engine->forward(batch(0, world.rank()));
    {
      const zero::GatheredParameters gathered({model.up}, 0);
      const c10::NoGradGuard no_grad;
      if (world.rank() == 0) model.up[0].fill_(0.75);
    }
    const zero::GatheredParameters gathered({model.up});
    at::Tensor expected = RoundedNet().up.detach().clone();
    expected[0].fill_(0.75);
    EXPECT_TRUE(model.up.equal(expected));
  });
}

TEST(QuantizedWeights, SendAQuarterOfTheBytesOfFp32) {
  run_ranks(2, [](comm::World& world) {
    const auto bytes_of = [&](bool quantized) {
      const auto notes = std::make_shared<CallNotes>();
      const auto engine = engine_with(config_with(quantized), counted_world(world, notes));
      engine->eval();
      const c10::NoGradGuard no_grad;
      notes->clear();
      engine->forward(batch(0, world.rank()));
      int64_t bytes = 0;
      for (const NotedCall& call : *notes) {
        if (call.collective == "all_gather") bytes += call.bytes;
      }
      return bytes;
    };
    const int64_t plain = bytes_of(false), quantized = bytes_of(true);
    EXPECT_EQ(quantized - kColumnsOfNet * 4,
              2 * 2 * kernels::quantized_bytes(kRowsOfNet * kColumnsOfNet / 2, 8));
    EXPECT_LT(quantized, 0.27 * plain);
  });
}

TEST(QuantizedWeights, TrainToTheLossOfExactOnes) {
  for (const Json& precision : net_precisions()) {
    if (precision.contains("bf16")) continue;
    run_ranks(2, [&](comm::World& world) {
      const double first = train(*engine_with(config_with(false, precision), world), 1);
      const double exact = train(*engine_with(config_with(false, precision), world), 40);
      const double rounded = train(*engine_with(config_with(true, precision), world), 40);
      EXPECT_LT(exact, 0.1 * first);
      EXPECT_NEAR(rounded, exact, 0.01 * first);
    });
  }
}

TEST(QuantizedWeights, ResumeBitEqually) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto first = engine_with(config_with(true), world);
    train(*first, 3);
    first->save_checkpoint(folder.path());
    const double expected = train(*first, 3);
    const auto second = engine_with(config_with(true), world);
    second->load_checkpoint(folder.path());
    EXPECT_EQ(train(*second, 3), expected);
  });
}

TEST(QuantizedWeights, AreGivenBackAsTheyAre) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = engine_with(config_with(true), world);
    engine->forward(batch(0, world.rank()));
    engine->destroy();
    EXPECT_TRUE(engine->module().up.equal(RoundedNet().up.detach()));
  });
}

}  // namespace
}  // namespace deepspeed::testing
