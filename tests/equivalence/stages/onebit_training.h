// Small trainings with optimizers whose ranks exchange 1 bit an element, for the tests of these.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "deepspeed/zero/compressed_exchange.h"

#include "tests/equivalence/stages/zeropp_net.h"
#include "tests/support/counted_world.h"

namespace deepspeed::testing {

inline Json onebit_config(const std::string& type, const Json& params, int stage,
                          const Json& patch = Json::object()) {
  Json config = {{"train_micro_batch_size_per_gpu", 4},
                 {"zero_optimization", {{"stage", stage}}},
                 {"optimizer", {{"type", type}, {"params", {{"lr", 0.003}, {"weight_decay", 0.01}}}}}};
  config["optimizer"]["params"].update(params);
  config.merge_patch(patch);
  return config;
}

/// An optimizer that exchanges exact gradients, by which the warm-up is measured.
inline Json with_exact_optimizer(const std::string& type, int stage, Json patch = Json::object()) {
  patch["gradient_clipping"] = 0.0;
  patch["zero_allow_untested_optimizer"] = true;
  return onebit_config(type, {{"bias_correction", false}}, stage, patch);
}

inline Json onebit_adam(int freeze_step, int stage, const Json& patch = Json::object()) {
  return onebit_config("OneBitAdam", {{"freeze_step", freeze_step}}, stage, patch);
}

inline Json onebit_lamb(int freeze_step, int stage, const Json& patch = Json::object()) {
  return onebit_config("OneBitLamb", {{"freeze_step", freeze_step}}, stage, patch);
}

/// Second moments are renewed in steps 1 to 3, and in 4, 6, ... up to var_freeze_step; then there are two
/// steps with an exchange, two exchanges in every second step, and others in every fourth.
inline Json zero_one_adam(int var_freeze_step, const Json& patch = Json::object()) {
  return onebit_config("ZeroOneAdam",
                       {{"var_freeze_step", var_freeze_step},
                        {"var_update_scaler", 3},
                        {"local_step_scaler", 2},
                        {"local_step_clipper", 4}},
                       0, patch);
}

inline const std::vector<Json>& exchange_precisions() {
  static const std::vector<Json> all = {
      Json::object(),
      {{"bf16", {{"enabled", true}}}},
      {{"gradient_accumulation_steps", 2}, {"zero_optimization", {{"overlap_comm", true}}}}};
  return all;
}

at::Tensor net_weights(auto& engine) {
  auto& net = engine.module();
  return at::cat({net.up.detach().view({-1}), net.down.detach().view({-1}), net.bias.detach()}).clone();
}

inline at::Tensor weights_after(const Json& config, const comm::World& world, int steps) {
  const auto engine = zeropp_engine(config, world);
  train_zeropp(*engine, steps);
  return net_weights(*engine);
}

inline bool all_ranks_have(const at::Tensor& values, const comm::World& world) {
  at::Tensor of_first = values.clone();
  if (world.size() > 1) world.group().broadcast(of_first, 0);
  return of_first.equal(values);
}

/// Bytes that a rank sends in a step, an all-reduce counted both ways.
inline double bytes_of_step(auto& engine, CallNotes& notes) {
  notes.clear();
  train_zeropp(engine, 1);
  int64_t bytes = 0;
  for (const NotedCall& call : notes) bytes += call.collective == "all_reduce" ? 2 * call.bytes : call.bytes;
  return double(bytes);
}

/// What is sent per step for the net of these tests where gradients are averaged in fp32.
inline constexpr double kBytesOfAllReduce = 2.0 * 4 * (2 * kRowsOfNet * kColumnsOfNet + kColumnsOfNet);

}  // namespace deepspeed::testing
