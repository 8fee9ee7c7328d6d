// How often one step makes the host wait for the device. The caller does not read the loss.
#include <string>

#include <gtest/gtest.h>

#include "tests/engine/make_engine.h"
#include "tests/simulated_cuda/device/streams.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

/// Returns the waits of the host in the fifth step.
simulated::HostWaits waits_of_a_step(const Json& config, const comm::World& world) {
  const auto engine = make_engine(basic(config), world);
  const auto type = engine->module().parameters().front().scalar_type();
  simulated::HostWaits waits;
  for (int step = 0; step < 5; ++step) {
    const auto [inputs, targets] = odd_batch(4 * step, 4);
    const at::Tensor in = inputs.to(at::kCUDA, type), out = targets.to(at::kCUDA);
    simulated::take_host_waits();
    engine->backward(engine->forward(in, out));
    engine->step();
    waits = simulated::take_host_waits();
  }
  return waits;
}

Json zero_config(int stage, const Json& patch = Json::object()) {
  Json zero = {{"stage", stage}, {"sub_group_size", 40}, {"stage3_param_persistence_threshold", 13}};
  zero.update(patch);
  return {{"zero_optimization", zero}, {"bf16", {{"enabled", true}}}};
}

TEST(HostWaits, NumberOneForACheckAndNoneInAStepWithoutOffload) {
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [&](comm::World& world) {
      for (const int stage : {0, 1, 2, 3}) {
        for (const bool checks : {false, true}) {
          for (const double clipping : {0.0, 0.1}) {
            SCOPED_TRACE(message("stage ", stage, clipping > 0 ? ", clipped" : "", checks ? ", checked" : "",
                                 " on ", ranks, " ranks"));
            Json config = zero_config(stage);
            config["bf16"]["check_grad_overflow"] = checks;
            config["gradient_clipping"] = clipping;
            config["zero_optimization"]["allgather_partitions"] = clipping == 0.0;
            const simulated::HostWaits waits = waits_of_a_step(config, world);
            // What skips the step is the host's to know; what clips it is not.
            EXPECT_LE(waits.waits + waits.needless, checks ? 1 : 0) << waits.text();
          }
        }
      }
      Json fp16 = zero_config(2);
      fp16.erase("bf16");
      fp16["fp16"] = {{"enabled", true}, {"initial_scale_power", 8}};
      const simulated::HostWaits waits = waits_of_a_step(fp16, world);
      EXPECT_LE(waits.waits + waits.needless, 1) << waits.text();
    });
  }
}

// The host computes with what the device has made: it waits once for the sums, for the norm, and for buffers
// of a slice.
TEST(HostWaits, AreAFewASliceWithOffload) {
  const Json cpu = {{"device", "cpu"}}, super = {{"device", "cpu"}, {"super_offload", true}};
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [&](comm::World& world) {
      for (Json config :
           {zero_config(1, {{"offload_optimizer", cpu}}), zero_config(2, {{"offload_optimizer", cpu}}),
            zero_config(3, {{"offload_optimizer", cpu}}), zero_config(3, {{"offload_param", cpu}}),
            zero_config(3, {{"offload_optimizer", cpu}, {"offload_param", cpu}}),
            zero_config(2, {{"offload_optimizer", super}}), zero_config(3, {{"offload_optimizer", super}})}) {
        config["zero_optimization"]["sub_group_size"] = 1'000'000;  // one slice
        const simulated::HostWaits waits = waits_of_a_step(config, world);
        EXPECT_LE(waits.waits, 4) << config << "\n" << waits.text();
      }
    });
  }
}

}  // namespace
}  // namespace deepspeed::testing
