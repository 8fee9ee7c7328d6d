// Steps by a factor that stays on the device are those by the number that the host would have read.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/optim/factory.h"

#include "tests/engine/make_engine.h"
#include "tests/simulated_cuda/device/streams.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

/// An optimizer of the config, which takes the scale where it is told to.
class TakesScale : public optim::Optimizer {
 public:
  TakesScale(std::unique_ptr<optim::Optimizer> of, bool on_device)
      : Optimizer(of->param_groups()), of_(std::move(of)), on_device_(on_device) {}
  std::string name() const override { return of_->name(); }
  bool is_elementwise() const override { return of_->is_elementwise(); }
  bool steps_cut_parameters() const override { return of_->steps_cut_parameters(); }
  bool takes_scale_on_device() const override { return on_device_ && of_->takes_scale_on_device(); }
  bool skips_on_device() const override { return on_device_ && of_->skips_on_device(); }
  void forget_step(size_t slice_id) override { of_->forget_step(slice_id); }
  void step(const optim::FlatSlice& slice, double gradient_scale) override {
    num_on_device += slice.scale_on_device.defined() ? 1 : 0;
    of_->step(slice, gradient_scale);
  }
  optim::SliceState state(size_t slice_id) const override { return of_->state(slice_id); }
  void load_state(size_t slice_id, const optim::SliceState& state) override {
    of_->load_state(slice_id, state);
  }
  void check_state(const optim::SliceState& state) const override { of_->check_state(state); }
  int64_t state_bytes() const override { return of_->state_bytes(); }

  static inline int num_on_device = 0;

 private:
  std::unique_ptr<optim::Optimizer> of_;
  bool on_device_;
};

struct Trained {
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> states;
  std::vector<double>
      numbers;  // of each step: applied or not, loss scale, rate, skips, norm; of slices: their steps
  int64_t skipped_steps = 0;
  int num_on_device = 0;            // slices that were stepped by a scale of the device
  int64_t host_waits = 0;           // of the last step
  int64_t launches_after_wait = 0;  // of the last step
};

/// Steps in which the loss is not finite, the first one among them.
bool is_bad(int step) { return step == 0 || step == 3; }

Trained train(const Json& config, const Json& optimizer, bool on_device, const comm::World& world,
              bool has_bad_steps = false) {
  TakesScale::num_on_device = 0;
  const auto engine =
      initialize(std::make_shared<OddNet>(),
                 {.config = config,
                  .slice_optimizer =
                      [&](std::vector<optim::ParamGroup> groups) {
                        return std::make_unique<TakesScale>(
                            optim::make_optimizer(optimizer["type"], optimizer["params"], std::move(groups)),
                            on_device);
                      },
                  .world = world})
          .engine;
  Trained trained;
  const auto type = engine->module().parameters().front().scalar_type();
  for (int step = 0; step < 6; ++step) {
    auto [inputs, targets] = odd_batch(4 * step, 4);
    if (has_bad_steps && is_bad(step) && world.rank() == 0) targets.fill_(INFINITY);
    const at::Tensor in = inputs.to(at::kCUDA, type), out = targets.to(at::kCUDA);
    simulated::take_host_waits();
    engine->backward(engine->forward(in, out));
    engine->step();
    const int64_t launches = simulated::num_launches();
    const simulated::HostWaits waits = simulated::take_host_waits();
    trained.host_waits = waits.waits;
    trained.launches_after_wait = launches - waits.launches_before;
    trained.numbers.insert(trained.numbers.end(),
                           {double(engine->was_step_applied()), engine->loss_scale(), engine->get_lr().at(0),
                            double(engine->skipped_steps()), engine->get_global_grad_norm().value_or(-1)});
  }
  trained.skipped_steps = engine->skipped_steps();
  trained.num_on_device = TakesScale::num_on_device;
  for (const at::Tensor& param : engine->module().parameters()) {
    if (param.requires_grad()) trained.weights.push_back(safe_get_full_fp32_param(*engine, param).cpu());
  }
  constexpr size_t kSlicesAtMost = 32;
  for (size_t slice = 0; slice < kSlicesAtMost; ++slice) {
    const optim::SliceState state = engine->optimizer()->base_optimizer().state(slice);
    trained.numbers.push_back(double(state.step));
    for (const auto& [name, tensor] : state.tensors) trained.states.push_back(tensor.cpu().clone());
  }
  return trained;
}

Json config_of(int stage) {
  return {{"train_micro_batch_size_per_gpu", 4},
          {"gradient_clipping", 0.05},
          {"bf16", {{"enabled", true}, {"check_grad_overflow", false}}},
          {"zero_allow_untested_optimizer", true},
          {"zero_optimization",
           {{"stage", stage}, {"sub_group_size", 40}, {"stage3_param_persistence_threshold", 13}}}};
}

void expect_equal(const Trained& seen, const Trained& expected) {
  EXPECT_GT(seen.num_on_device, 0);
  EXPECT_EQ(expected.num_on_device, 0);
  EXPECT_EQ(seen.numbers, expected.numbers);
  ASSERT_EQ(seen.weights.size(), expected.weights.size());
  for (size_t i = 0; i < seen.weights.size(); ++i)
    EXPECT_TRUE(at::equal(seen.weights[i], expected.weights[i])) << "parameter " << i;
  EXPECT_FALSE(seen.weights.empty());
  ASSERT_EQ(seen.states.size(), expected.states.size());
  for (size_t i = 0; i < seen.states.size(); ++i)
    EXPECT_TRUE(at::equal(seen.states[i], expected.states[i])) << "state " << i;
}

void expect_steps_of_the_host(int stage, const Json& optimizer, const comm::World& world) {
  SCOPED_TRACE(message("stage ", stage, " ", optimizer));
  const Trained seen = train(config_of(stage), optimizer, true, world);
  const Trained expected = train(config_of(stage), optimizer, false, world);
  expect_equal(seen, expected);
  EXPECT_EQ(seen.host_waits, 0);
  EXPECT_EQ(expected.host_waits, 1);
}

std::vector<Json> checked_precisions() {
  return {{{"bf16", {{"enabled", true}}}},
          {{"fp16",
            {{"enabled", true}, {"initial_scale_power", 8}, {"hysteresis", 1}, {"loss_scale_window", 2}}}},
          {{"fp16", {{"enabled", true}, {"loss_scale", 64}}}},
          Json::object()};  // fp32, which checks where it clips
}

void expect_skips_of_the_host(int stage, double clipping, Json precision, const Json& optimizer,
                              const comm::World& world) {
  SCOPED_TRACE(message("stage ", stage, " clipping ", clipping, " ", precision, " ", optimizer));
  precision["gradient_clipping"] = clipping;
  precision["zero_allow_untested_optimizer"] = true;
  precision["log_level"] = "error";
  precision["scheduler"] = {{"type", "WarmupLR"},
                            {"params", {{"warmup_max_lr", 0.01}, {"warmup_num_steps", 9}}}};
  Json config = config_of(stage);
  config.erase("bf16");
  config.update(precision);
  const Trained seen = train(config, optimizer, true, world, true);
  const Trained expected = train(config, optimizer, false, world, true);
  expect_equal(seen, expected);
  EXPECT_EQ(seen.skipped_steps, 2);
  EXPECT_EQ(seen.host_waits, 1);
  // The device has the whole step when the host begins to wait for the norm.
  EXPECT_EQ(seen.launches_after_wait, 0);
  EXPECT_GT(expected.launches_after_wait, 0);
}

TEST(ScaleOnDevice, GivesTheBitsOfTheHostsAtEveryStage) {
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [](comm::World& world) {
      for (const int stage : {0, 1, 2, 3})
        expect_steps_of_the_host(stage, {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}, world);
    });
  }
}

TEST(ScaleOnDevice, SkipsStepsAsTheHostDoesAtEveryStage) {
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [](comm::World& world) {
      for (const int stage : {0, 1, 2, 3}) {
        for (const Json& precision : checked_precisions()) {
          for (const double clipping : {0.0, 0.05}) {
            if (clipping == 0.0 && precision.empty()) continue;  // fp32 without clipping checks nothing
            expect_skips_of_the_host(stage, clipping, precision,
                                     {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}, world);
          }
        }
      }
    });
  }
}

TEST(ScaleOnDevice, SkipsStepsAsTheHostDoesByEveryOptimizer) {
  const Json lr = {{"lr", 0.01}};
  for (const Json& optimizer :
       {Json{{"type", "Adam"}, {"params", {{"lr", 0.01}, {"torch_adam", true}, {"amsgrad", true}}}},
        Json{{"type", "Lion"}, {"params", lr}}, Json{{"type", "Adagrad"}, {"params", lr}},
        Json{{"type", "SGD"}, {"params", {{"lr", 0.01}, {"momentum", 0.9}, {"dampening", 0.5}}}}}) {
    run_ranks(1, [&](comm::World& world) {
      expect_skips_of_the_host(1, 0.05, {{"bf16", {{"enabled", true}}}}, optimizer, world);
    });
  }
}

// Weights that are brought back from the device are written whether or not its kernels have: the host reads
// first where it checks.
TEST(ScaleOnDevice, GivesTheBitsOfTheHostsWithParametersInHostMemory) {
  run_ranks(2, [](comm::World& world) {
    const Json adam = {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}};
    for (const bool checks : {false, true}) {
      SCOPED_TRACE(checks ? "checked" : "not checked");
      Json config = config_of(3);
      config["log_level"] = "error";
      config["bf16"]["check_grad_overflow"] = checks;
      config["zero_optimization"]["offload_param"] = {{"device", "cpu"}};
      expect_equal(train(config, adam, true, world, checks), train(config, adam, false, world, checks));
    }
  });
}

TEST(ScaleOnDevice, IsNotGivenToStepsOfTheHost) {
  run_ranks(1, [](comm::World& world) {
    Json config = config_of(2);
    config["zero_force_ds_cpu_optimizer"] = false;  // take the one that is given
    config["zero_optimization"]["offload_optimizer"] = {{"device", "cpu"}};
    EXPECT_EQ(train(config, {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}, true, world).num_on_device, 0);
  });
}

TEST(ScaleOnDevice, GivesTheBitsOfTheHostsByEveryOptimizer) {
  const Json lr = {{"lr", 0.01}};
  for (const Json& optimizer :
       {Json{{"type", "Adam"}, {"params", {{"lr", 0.01}, {"torch_adam", true}, {"amsgrad", true}}}},
        Json{{"type", "Lion"}, {"params", lr}}, Json{{"type", "Adagrad"}, {"params", lr}},
        Json{{"type", "SGD"}, {"params", {{"lr", 0.01}, {"momentum", 0.9}}}},
        Json{{"type", "SGD"}, {"params", lr}}, Json{{"type", "Lamb"}, {"params", lr}},
        Json{{"type", "Muon"}, {"params", lr}}, Json{{"type", "RMSprop"}, {"params", lr}}}) {
    run_ranks(1, [&](comm::World& world) { expect_steps_of_the_host(1, optimizer, world); });
  }
}

}  // namespace
}  // namespace deepspeed::testing
