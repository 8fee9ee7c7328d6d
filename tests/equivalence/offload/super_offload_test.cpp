// zero_optimization.offload_optimizer.super_offload: slices that are stepped while backward runs end as those
// that are stepped after it, bit for bit; what must not happen in between is an error.
#include <functional>
#include <limits>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/zero_state.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/training_run.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using OddEngine = std::shared_ptr<DeepSpeedEngine<OddNet>>;

/// Many slices and buckets, and no clipping.
Json in_pieces(int stage, Json patch = Json::object()) {
  Json config =
      basic({{"gradient_clipping", 0.0},
             {"log_level", "error"},
             {"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 60}, {"sub_group_size", 20}}}});
  if (stage == 3) config["zero_optimization"]["stage3_param_persistence_threshold"] = 13;
  config.merge_patch(patch);
  return config;
}

Json ahead(Json config, Json offload = Json::object()) {
  offload["device"] = "cpu";
  offload["super_offload"] = true;
  config["zero_optimization"]["offload_optimizer"] = offload;
  return config;
}

Json bf16(Json patch = Json::object()) {
  patch["enabled"] = true;
  return {{"bf16", patch}};
}

void expect_the_same(TrainingSpec spec, const Json& config, const TrainingResult& expected) {
  spec.config = config;
  const TrainingResult result = run_training(spec);
  EXPECT_EQ(result.weights, expected.weights) << config;
  EXPECT_EQ(result.losses, expected.losses) << config;
  // A sum over slices, in double, instead of one over the group.
  EXPECT_LE(largest_relative_difference(result.norms, expected.norms), 1e-12) << config;
}

class SuperOffload : public ::testing::TestWithParam<std::tuple<int, int>> {};
INSTANTIATE_TEST_SUITE_P(RanksStage, SuperOffload,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Values(2, 3)));

TEST_P(SuperOffload, IsBitEqualToNone) {
  const auto [ranks, stage] = GetParam();
  for (const Json& precision : {Json(Json::object()), bf16(), bf16({{"check_grad_overflow", false}})}) {
    TrainingSpec spec{.world_size = ranks, .steps = 5, .config = in_pieces(stage, precision)};
    const TrainingResult expected = run_training(spec);
    ASSERT_LT(expected.losses.back(), expected.losses.front());
    expect_the_same(spec, ahead(spec.config), expected);
    if (stage < 3) continue;
    expect_the_same(spec, ahead(spec.config, {{"ratio", 0.5}}), expected);
    Json config = ahead(spec.config);
    config["zero_optimization"]["offload_param"] = {{"device", "cpu"}};
    expect_the_same(spec, config, expected);
  }
}

TEST(SuperOffloadOptions, AreBitEqualToNone) {
  const Json unchecked = {{"check_grad_overflow", false}};
  Json sixteen = unchecked, split = unchecked;
  sixteen.update({{"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}});
  split["split_master_weights"] = true;
  Json fp32_sums = bf16(unchecked);
  fp32_sums["data_types"] = {{"grad_accum_dtype", "fp32"}};
  Json no_overlap = bf16();
  no_overlap["zero_optimization"] = {{"overlap_comm", false}, {"contiguous_gradients", false}};
  for (const int stage : {2, 3}) {
    for (const Json& patch :
         {bf16(sixteen), bf16(split), bf16({{"split_master_weights", true}}), fp32_sums, no_overlap}) {
      for (const bool is_direct : {false, true}) {
        TrainingSpec spec{.world_size = 2,
                          .accumulation = 3,
                          .steps = 4,
                          .direct_backward = is_direct,
                          .config = in_pieces(stage, patch)};
        // With 16-bit masters the optimizer is in host memory either way.
        Json plain = ahead(spec.config);
        plain["zero_optimization"]["offload_optimizer"]["super_offload"] = false;
        spec.config = plain;
        const TrainingResult expected = run_training(spec);
        ASSERT_FALSE(expected.weights.empty());
        const Json offload = stage == 3 ? Json{{"ratio", 0.5}} : Json(Json::object());
        expect_the_same(spec, ahead(plain), expected);
        expect_the_same(spec, ahead(plain, offload), expected);
      }
    }
  }
}

// With clipping, and in fp16, the step waits for all gradients, as DeepSpeed's does.
TEST(SuperOffloadOptions, StepAfterBackwardIfTheyNeedAllGradientsFirst) {
  for (const Json& patch : {Json{{"gradient_clipping", 0.05}},
                            Json{{"fp16", {{"enabled", true}, {"initial_scale_power", 20}}}}}) {
    TrainingSpec spec{.world_size = 2, .steps = 16, .config = in_pieces(3, patch)};
    const TrainingResult expected = run_training(spec);
    expect_the_same(spec, ahead(spec.config), expected);
  }
}

/// Calls `work` when backward reaches the loss's input, x.
at::Tensor call_in_backward(const at::Tensor& x, std::function<void()> work) {
  class Call : public torch::autograd::Function<Call> {
   public:
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                              const std::shared_ptr<std::function<void()>>& work) {
      context->saved_data["work"] = c10::IValue(reinterpret_cast<int64_t>(new std::shared_ptr(work)));
      return x.view_as(x);
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
      const auto* work =
          reinterpret_cast<std::shared_ptr<std::function<void()>>*>(context->saved_data["work"].toInt());
      (**work)();
      delete work;
      return {gradients[0], at::Tensor()};
    }
  };
  return Call::apply(x, std::make_shared<std::function<void()>>(std::move(work)));
}

/// Two layers; backward reaches `middle` after the second and before the first.
class TwoLayers : public torch::nn::Module {
 public:
  TwoLayers()
      : first_(register_module("first", torch::nn::Linear(6, 6))),
        second_(register_module("second", torch::nn::Linear(6, 6))) {
    const torch::NoGradGuard no_grad;
    double value = 0.0;
    for (at::Tensor param : parameters()) {
      param.copy_(at::arange(param.numel(), param.options()).add(value++).sin().mul(0.5).view(param.sizes()));
    }
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = first_->forward(x);
    return second_->forward(middle ? call_in_backward(hidden, middle) : hidden).pow(2).mean();
  }

  std::function<void()> middle;

 private:
  torch::nn::Linear first_, second_;
};

auto make_two_layers(const Json& config, const comm::World& world) {
  return initialize(std::make_shared<TwoLayers>(), {.config = config, .world = world}).engine;
}

at::Tensor rows_of(const comm::World& world, int step, at::ScalarType dtype) {
  return at::arange(24, at::kFloat).add(7 * step + world.rank()).cos().view({4, 6}).to(dtype);
}

template <class Engine>
void two_layers_step(Engine& engine, const comm::World& world, int step) {
  const auto dtype = engine->module().parameters().front().scalar_type();
  engine->backward(engine->forward(rows_of(world, step, dtype)));
  engine->step();
}

/// Each reduction ends at once, so that the second layer's slices are complete when backward reaches
/// `middle`.
Json two_layers_config(const Json& patch = bf16()) {
  Json config = ahead(in_pieces(3, patch));
  config["zero_optimization"].update({{"overlap_comm", false}, {"reduce_bucket_size", 10}});
  return config;
}

TEST(SuperOffloadStep, BeginsBeforeBackwardEnds) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = make_two_layers(two_layers_config(), world);
    std::string in_the_middle = "backward did not come there";
    engine->module().middle = [&] {
      in_the_middle = error_of<UsageError>([&] { engine->optimizer()->gradient(0); });
    };
    two_layers_step(engine, world, 0);
    EXPECT_THAT(in_the_middle, HasSubstr("has begun the step"));
    // No later: backward's end alone is no sign of a step.
    engine->module().middle = nullptr;
    EXPECT_NO_THROW(two_layers_step(engine, world, 1));
  });
}

template <class Engine>
std::vector<at::Tensor> masters_of(Engine& engine) {
  std::vector<at::Tensor> masters;
  for (const at::Tensor& param : engine->module().parameters())
    masters.push_back(safe_get_full_fp32_param(*engine, param).clone());
  return masters;
}

TEST(SuperOffloadOverflow, TakesBackWhatWasBegun) {
  for (const bool is_split : {false, true}) {
    for (const int bad_step : {0, 3}) {
      run_ranks(2, [&](comm::World& world) {
        const Json config = two_layers_config(bf16({{"split_master_weights", is_split}}));
        Json plain_config = config;
        plain_config["zero_optimization"].erase("offload_optimizer");
        const auto engine = make_two_layers(config, world);
        const auto plain = make_two_layers(plain_config, world);
        for (int step = 0; step < 6; ++step) {
          if (step == bad_step) {
            const auto before = masters_of(engine);
            for (const auto& any : {engine, plain}) {
              // The first layer's gradients alone, which come when the second one was stepped.
              const auto weight = any->module().named_parameters()["first.weight"];
              const unsigned hook = weight.register_hook([&](const at::Tensor& gradient) -> at::Tensor {
                return world.rank() == 1 ? gradient * std::numeric_limits<double>::infinity() : gradient;
              });
              two_layers_step(any, world, step);
              weight.remove_hook(hook);
              EXPECT_FALSE(any->was_step_applied());
              EXPECT_EQ(any->skipped_steps(), 1);
            }
            const auto after = masters_of(engine);
            for (size_t index = 0; index < before.size(); ++index)
              EXPECT_LE((after[index] - before[index]).abs().max().item<double>(), 1e-6) << index;
          } else {
            two_layers_step(engine, world, step);
            two_layers_step(plain, world, step);
          }
          const auto ours = masters_of(engine), expected = masters_of(plain);
          for (size_t index = 0; index < ours.size(); ++index) {
            const double difference = (ours[index] - expected[index]).abs().max().item<double>();
            // Exact until the step is taken back; and from there on where there were no moments before.
            EXPECT_LE(difference, step < bad_step ? 0.0 : 1e-4) << "step " << step << " parameter " << index;
          }
        }
      });
    }
  }
}

TEST(SuperOffloadResume, TrainsOnFromTheCheckpointsWeights) {
  for (const int stage : {2, 3}) {
    for (const Json& precision : {Json(Json::object()), bf16()}) {
      const TemporaryFolder folder;
      run_ranks(2, [&](comm::World& world) {
        const Json config = ahead(in_pieces(stage, precision));
        const auto straight = make_two_layers(config, world);
        for (const int step : {0, 1, 2}) two_layers_step(straight, world, step);
        straight->save_checkpoint(folder.string());
        const auto resumed = make_two_layers(config, world);
        resumed->load_checkpoint(folder.string());
        const auto expect_the_same_weights = [&](const char* when) {
          const auto ours = resumed->module().parameters(), expected = straight->module().parameters();
          const zero::GatheredParameters all(ours), all_expected(expected);
          for (size_t index = 0; index < ours.size(); ++index)
            EXPECT_TRUE(at::equal(ours[index], expected[index])) << config << when << index;
        };
        expect_the_same_weights(" before a step, parameter ");
        for (const auto& engine : {straight, resumed}) two_layers_step(engine, world, 3);
        expect_the_same_weights(" after a step, parameter ");
      });
    }
  }
}

TEST(SuperOffloadErrors, NameWhatChangesBetweenBackwardAndStep) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto fresh = [&] {
      auto engine = make_two_layers(two_layers_config(), world);
      two_layers_step(engine, world, 0);
      engine->save_checkpoint(folder.string(), {.tag = "good"});
      engine->backward(engine->forward(rows_of(world, 1, at::kBFloat16)));
      return engine;
    };
    const auto expect_that_loading_helps = [&](auto& engine) {
      EXPECT_THAT(error_of<UsageError>([&] { engine->optimizer()->state().of(0); }),
                  HasSubstr("applied in part"));
      engine->load_checkpoint(folder.string(), {.tag = "good"});
      EXPECT_NO_THROW(two_layers_step(engine, world, 1));
      const auto undisturbed = make_two_layers(two_layers_config(), world);
      for (const int step : {0, 1}) two_layers_step(undisturbed, world, step);
      const auto ours = masters_of(engine), expected = masters_of(undisturbed);
      for (size_t index = 0; index < ours.size(); ++index)
        EXPECT_TRUE(at::equal(ours[index], expected[index]));
    };

    auto engine = fresh();
    engine->set_lr(0.5);
    EXPECT_THAT(error_of<UsageError>([&] { engine->step(); }),
                AllOf(HasSubstr("hyperparameter of parameter group 0"), HasSubstr("super_offload")));
    engine->set_lr(0.01);
    expect_that_loading_helps(engine);

    engine = fresh();
    {
      const torch::NoGradGuard no_grad;
      at::Tensor weight = engine->module().named_parameters()["second.weight"];
      const zero::GatheredParameters gathered({weight}, 0);
      weight.add_(1.0);
    }
    EXPECT_THAT(error_of<UsageError>([&] { engine->step(); }),
                AllOf(HasSubstr("'second.weight' was changed"), HasSubstr("super_offload")));
    expect_that_loading_helps(engine);

    engine = fresh();
    engine->load_checkpoint(folder.string(), {.tag = "good"});
    EXPECT_NO_THROW(two_layers_step(engine, world, 1));
  });
}

// At stage 2 the second layer's gradients may all be of one rank's part.
TEST(SuperOffloadErrors, ReachAllRanksAfterAFailedBackward) {
  const TemporaryFolder folder;
  for (const int stage : {2, 3}) {
    run_ranks(2, [&](comm::World& world) {
      Json config = two_layers_config();
      config["zero_optimization"]["stage"] = stage;
      config["zero_optimization"].erase("stage3_param_persistence_threshold");
      const auto engine = make_two_layers(config, world);
      two_layers_step(engine, world, 0);
      const std::string tag = message("stage", stage);
      engine->save_checkpoint(folder.string(), {.tag = tag});
      engine->module().middle = [] { throw std::runtime_error("no more"); };
      EXPECT_THAT(error_of<std::runtime_error>([&] { two_layers_step(engine, world, 1); }),
                  HasSubstr("no more"));
      engine->module().middle = nullptr;
      EXPECT_THAT(error_of<UsageError>([&] { engine->zero_grad(); }),
                  HasSubstr("load a checkpoint if that backward() failed"));
      engine->load_checkpoint(folder.string(), {.tag = tag});
      EXPECT_NO_THROW(two_layers_step(engine, world, 1));
    });
  }
}

TEST(SuperOffloadErrors, LoseNothing) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_two_layers(two_layers_config(), world);
    const auto undisturbed = make_two_layers(two_layers_config(), world);
    for (int step = 0; step < 3; ++step) {
      const at::Tensor rows = rows_of(world, step, at::kBFloat16);
      engine->backward(engine->forward(rows));
      const auto param = engine->module().parameters().front();
      const std::vector<std::function<void()>> calls = {
          [&] { engine->zero_grad(); }, [&] { safe_get_full_grad(*engine, param); },
          [&] { safe_get_full_fp32_param(*engine, param); },
          [&] { safe_set_full_fp32_param(*engine, param, at::zeros(param.sizes())); },
          [&] { engine->save_checkpoint(folder.string(), {.tag = "never"}); }};
      for (size_t index = 0; index < calls.size(); ++index)
        EXPECT_THAT(error_of<UsageError>(calls[index]), HasSubstr("call step() first")) << index;
      EXPECT_THAT(error_of<UsageError>([&] { engine->backward(engine->forward(rows)); }),
                  HasSubstr("another backward()"));
      engine->step();
      two_layers_step(undisturbed, world, step);
    }
    const auto ours = masters_of(engine), expected = masters_of(undisturbed);
    for (size_t index = 0; index < ours.size(); ++index) EXPECT_TRUE(at::equal(ours[index], expected[index]));
  });
}

TEST(SuperOffloadErrors, NameOptimizersAndStatesThatItCannotStep) {
  const auto error_with = [](const Json& patch) {
    Json config = two_layers_config(patch);
    return error_of<ConfigError>([&] { make_two_layers(config, {}); });
  };
  EXPECT_THAT(error_with({{"optimizer", {{"type", "Lion"}, {"params", {{"lr", 0.01}}}}},
                          {"zero_allow_untested_optimizer", true}}),
              AllOf(HasSubstr("super_offload"), HasSubstr("Adam")));
  Json narrow = bf16();
  narrow["optimizer"]["params"]["moment_dtype"] = "bf16";
  EXPECT_THAT(error_with(narrow), HasSubstr("bf16.check_grad_overflow"));
}

}  // namespace
}  // namespace deepspeed::testing
