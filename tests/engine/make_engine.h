// Engines around OddNet, for the tests of this folder.
#pragma once

#include <memory>
#include <tuple>
#include <utility>

#include "deepspeed/initialize.h"

#include "tests/support/odd_net.h"

namespace deepspeed::testing {

inline Json basic(Json patch = Json::object()) {
  Json config = {{"train_micro_batch_size_per_gpu", 4},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}}};
  config.merge_patch(patch);
  return config;
}

inline auto make_engine(const Json& config, comm::World world = {}) {
  return initialize(std::make_shared<OddNet>(), {.config = config, .world = std::move(world)}).engine;
}

template <class Engine>
double train_step(Engine& engine, int64_t first = 0) {
  const auto [inputs, targets] = odd_batch(first, 4);
  const auto type = engine.module().parameters().front().scalar_type();
  const at::Tensor loss = engine.forward(inputs.to(type), targets);
  engine.backward(loss);
  engine.step();
  return loss.template item<double>();
}

}  // namespace deepspeed::testing
