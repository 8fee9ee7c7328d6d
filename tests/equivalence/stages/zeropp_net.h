// A small model for what ZeRO++ sends, and its training.
#pragma once

#include <memory>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "deepspeed/initialize.h"

namespace deepspeed::testing {

constexpr int64_t kColumnsOfNet = 96,
                  kRowsOfNet = 65;  // 6240 elements, which two and three ranks do not cut evenly

/// Two matrices, and a bias that stays exact.
struct ZeroppNet : torch::nn::Module {
  ZeroppNet() {
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

/// keys: of ZeRO-3; patch: of the whole config.
inline Json zeropp_config(const Json& keys, const Json& patch = Json::object()) {
  Json config = {{"train_micro_batch_size_per_gpu", 4},
                 {"zero_optimization", {{"stage", 3}, {"stage3_param_persistence_threshold", 100}}},
                 {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.01}}}}}};
  if (keys.is_object()) config["zero_optimization"].update(keys);
  config.merge_patch(patch);
  return config;
}

inline at::Tensor zeropp_batch(int step, int rank) {
  return (at::arange(4 * kColumnsOfNet) * 0.21 + double(7 * step + rank))
      .cos()
      .to(at::kFloat)
      .view({4, kColumnsOfNet});
}

inline auto zeropp_engine(const Json& config, const comm::World& world) {
  return initialize(std::make_shared<ZeroppNet>(), {.config = config, .world = world}).engine;
}

/// This rank's batch, in the dtype of the engine's weights.
at::Tensor zeropp_input(auto& engine, int step) {
  return zeropp_batch(step, engine.rank()).to(engine.device(), engine.module().bias.scalar_type());
}

/// Returns the last loss of this rank.
double train_zeropp(auto& engine, int steps) {
  double loss = 0;
  for (int step = 0; step < steps; ++step) {
    const at::Tensor value = engine.forward(zeropp_input(engine, step));
    engine.backward(value);
    engine.step();
    loss = value.template item<double>();
  }
  return loss;
}

}  // namespace deepspeed::testing
