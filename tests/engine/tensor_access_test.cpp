#include "deepspeed/engine/tensor_access.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/zeros_like.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/param_access.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed {
namespace {

using testing::basic;
using testing::make_engine;
using testing::train_step;

Json config_of(int stage, bool bf16) {
  return basic({{"zero_optimization", {{"stage", stage}}}, {"bf16", {{"enabled", bf16}}}});
}

TEST(TensorAccess, GivesWholeWeightsAndStatesAtEveryStage) {
  testing::run_ranks(3, [](comm::World& world) {
    for (const bool bf16 : {false, true}) {
      std::vector<at::Tensor> expected;
      for (const int stage : {0, 1, 2, 3}) {
        const auto engine = make_engine(config_of(stage, bf16), world);
        const zero::ParameterAccess access(engine->module().parameters());
        const auto params = engine->module().named_parameters();
        EXPECT_FALSE(safe_get_full_optimizer_state(*engine, params["norm.weight"], "exp_avg").defined());
        train_step(*engine);
        std::vector<at::Tensor> found;
        for (const auto& item : params) {
          if (!item.value().requires_grad()) continue;
          found.push_back(safe_get_full_fp32_param(*engine, item.value()));
          EXPECT_EQ(found.back().scalar_type(), at::kFloat);
          EXPECT_TRUE(found.back().to(item.value().scalar_type()).equal(item.value())) << item.key();
          found.push_back(safe_get_full_optimizer_state(*engine, item.value(), "exp_avg_sq"));
          EXPECT_EQ(found.back().sizes(), item.value().sizes());
        }
        if (stage == 0) expected = found;
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i)
          EXPECT_TRUE(found[i].equal(expected[i])) << stage << " " << i;
      }
    }
  });
}

TEST(TensorAccess, SetsWholeWeightsAndStatesAtEveryStage) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int variant : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const auto engine = make_engine(config_of(variant / 2, /*bf16=*/variant % 2 == 1), world);
      const zero::ParameterAccess access(engine->module().parameters());
      train_step(*engine);
      const at::Tensor weight = engine->module().named_parameters()["shared.weight"];
      const at::Tensor values = at::arange(weight.numel(), at::kFloat).view(weight.sizes()) / 1000;
      safe_set_full_fp32_param(*engine, weight, values);
      EXPECT_TRUE(safe_get_full_fp32_param(*engine, weight).equal(values));
      EXPECT_TRUE(weight.equal(values.to(weight.scalar_type())));
      safe_set_full_optimizer_state(*engine, weight, values, "exp_avg");
      EXPECT_TRUE(safe_get_full_optimizer_state(*engine, weight, "exp_avg").equal(values));
    }
  });
}

TEST(TensorAccess, RefusesWhatItCannotFind) {
  const auto engine = make_engine(basic());
  const auto params = engine->module().named_parameters();
  EXPECT_ERROR(UsageError, safe_get_full_fp32_param(*engine, params["frozen"]),
               "not a parameter that the engine's optimizer updates");
  EXPECT_ERROR(UsageError, safe_get_full_fp32_param(*engine, at::Tensor()),
               "not a parameter that the engine's optimizer updates");
  const at::Tensor weight = params["last.weight"];
  EXPECT_ERROR(UsageError, safe_set_full_optimizer_state(*engine, weight, weight, "exp_avg"),
               "no state 'exp_avg' before its first step");
  EXPECT_THAT(testing::error_of<UsageError>(
                  [&] { safe_set_full_fp32_param(*engine, weight, weight.view({-1}).narrow(0, 0, 3)); }),
              ::testing::AllOf(::testing::HasSubstr("'last.weight'"),
                               ::testing::HasSubstr("the value has 3 elements")));
  train_step(*engine);
  EXPECT_ERROR(UsageError, safe_get_full_optimizer_state(*engine, weight, "momentum"),
               "it has 'exp_avg', 'exp_avg_sq'");
}

// --- gradients ---

Json grad_config(int stage, const Json& precision) {
  Json config = basic({{"gradient_clipping", 0.0},
                       {"zero_allow_untested_optimizer", true},
                       {"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 150}}}});
  config["optimizer"] = {{"type", "SGD"}, {"params", {{"lr", 0.1}}}};
  config.merge_patch(precision);
  return config;
}

template <class Engine>
at::Tensor loss_of(Engine& engine, int64_t first) {
  const auto [inputs, targets] = testing::odd_batch(first, 4);
  return engine.forward(inputs.to(engine.module().parameters().front().scalar_type()), targets);
}

TEST(TensorAccess, GivesTheGradientOfTheWholeBatch) {
  testing::run_ranks(2, [](comm::World& world) {
    testing::OddNet reference;
    const auto [inputs, targets] = testing::odd_batch(0, 8);
    reference.forward(inputs, targets).backward();
    for (const int stage : {0, 1, 2, 3}) {
      for (const bool is_direct : {false, true}) {
        const auto engine = make_engine(grad_config(stage, Json::object()), world);
        const at::Tensor loss = loss_of(*engine, 4 * world.rank());
        if (is_direct) {
          loss.backward();
          engine->finish_backward();
        } else {
          engine->backward(loss);
        }
        for (const auto& item : engine->module().named_parameters()) {
          if (!item.value().requires_grad()) continue;
          const at::Tensor gradient = safe_get_full_grad(*engine, item.value());
          const at::Tensor expected = reference.named_parameters()[item.key()].grad();
          EXPECT_EQ(gradient.scalar_type(), at::kFloat);
          EXPECT_TRUE(expected.defined() ? gradient.allclose(expected, 1e-4, 1e-6)
                                         : gradient.equal(at::zeros_like(gradient)))
              << item.key() << " at stage " << stage;
        }
      }
    }
  });
}

TEST(TensorAccess, GradientsCarryTheLossScaleAndAreInFloat32) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2, 3}) {
      const auto engine =
          make_engine(grad_config(stage, {{"fp16", {{"enabled", true}, {"loss_scale", 8}}}}), world);
      const zero::ParameterAccess access(engine->module().parameters());
      engine->backward(engine->module().named_parameters()["gain"].to(at::kFloat).sum() * 0.5);
      const at::Tensor gradient = safe_get_full_grad(*engine, engine->module().named_parameters()["gain"]);
      EXPECT_EQ(gradient.scalar_type(), at::kFloat);
      EXPECT_EQ(gradient.item<double>(), 4.0) << "stage " << stage;
    }
  });
}

TEST(TensorAccess, SetsTheGradientThatTheStepUses) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2, 3}) {
      const auto engine = make_engine(grad_config(stage, Json::object()), world);
      const zero::ParameterAccess access(engine->module().parameters());
      const at::Tensor weight = engine->module().named_parameters()["shared.weight"];
      const at::Tensor bias = engine->module().named_parameters()["last.bias"];
      const at::Tensor before = weight.detach().clone(), bias_before = bias.detach().clone();
      engine->backward(loss_of(*engine, world.rank()));
      const at::Tensor values = at::arange(weight.numel(), at::kFloat).view(weight.sizes()) / 1000;
      safe_set_full_grad(*engine, weight, values);
      EXPECT_TRUE(safe_get_full_grad(*engine, weight).equal(values));
      const at::Tensor gradient = safe_get_full_grad(*engine, bias);
      std::vector<at::Tensor> seen;
      safe_update_full_grad_vectorized(*engine, {bias, weight},
                                       [&](const at::Tensor& gradient, const at::Tensor& param) {
                                         seen.push_back(param);
                                         return gradient * 2;
                                       });
      ASSERT_EQ(seen.size(), 2U);
      EXPECT_TRUE(seen[0].is_same(bias) && seen[1].is_same(weight));
      engine->step();
      EXPECT_TRUE(weight.allclose(before - values * 0.2, 1e-6, 1e-7)) << "stage " << stage;
      EXPECT_TRUE(bias.allclose(bias_before - gradient * 0.2, 1e-6, 1e-7)) << "stage " << stage;
    }
  });
}

TEST(TensorAccess, GradientsAreThereFromTheBoundarysBackwardToTheStep) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2, 3}) {
      Json config = grad_config(stage, Json::object());
      config["gradient_accumulation_steps"] = 2;
      const auto engine = make_engine(config, world);
      const at::Tensor weight = engine->module().named_parameters()["last.weight"];
      const auto refuses = [&](const char* when) {
        EXPECT_ERROR(UsageError, safe_get_full_grad(*engine, weight), "there is no reduced gradient",
                     "between the backward at the accumulation boundary", "and step()")
            << when << " at stage " << stage;
        EXPECT_ERROR(UsageError, safe_set_full_grad(*engine, weight, weight), "there is no reduced gradient")
            << when;
      };
      refuses("before all");
      train_step(*engine);
      refuses("between micro batches");
      loss_of(*engine, 0).backward();
      refuses("before finish_backward()");
      engine->finish_backward();
      EXPECT_TRUE(safe_get_full_grad(*engine, weight).defined());
      engine->step();
      EXPECT_TRUE(engine->was_step_applied());
      refuses("after the step");
      engine->set_gradient_accumulation_boundary(true);
      engine->backward(loss_of(*engine, 0));
      engine->zero_grad();
      refuses("after zero_grad()");
    }
  });
}

TEST(TensorAccess, LocalPartsBelongToStage3) {
  const auto engine = make_engine(basic({{"zero_optimization", {{"stage", 2}}}}));
  const at::Tensor weight = engine->module().named_parameters()["last.weight"];
  const auto refuses = [](const char* call, const auto& run) {
    EXPECT_THAT(run, ::testing::ThrowsMessage<UsageError>(
                         ::testing::AllOf(::testing::HasSubstr(call), ::testing::HasSubstr("stage 3"))));
  };
  refuses("safe_get_local_fp32_param", [&] { safe_get_local_fp32_param(*engine, weight); });
  refuses("safe_set_local_fp32_param", [&] { safe_set_local_fp32_param(*engine, weight, weight); });
  refuses("safe_get_local_optimizer_state",
          [&] { safe_get_local_optimizer_state(*engine, weight, "exp_avg"); });
  refuses("safe_set_local_optimizer_state",
          [&] { safe_set_local_optimizer_state(*engine, weight, weight, "exp_avg"); });
  refuses("safe_get_local_grad", [&] { safe_get_local_grad(*engine, weight); });
  refuses("safe_set_local_grad", [&] { safe_set_local_grad(*engine, weight, weight); });
}

TEST(TensorAccess, LocalPartsAreThoseOfTheWhole) {
  testing::run_ranks(3, [](comm::World& world) {
    for (const bool bf16 : {false, true}) {
      const auto engine = make_engine(config_of(3, bf16), world);
      const at::Tensor weight = engine->module().named_parameters()["last.weight"];  // 65: 22, 22, 21 + 1
      const auto part_of = [&](const at::Tensor& whole) {
        return at::constant_pad_nd(whole.view({-1}), {0, 1}).narrow(0, 22 * world.rank(), 22);
      };
      EXPECT_FALSE(safe_get_local_optimizer_state(*engine, weight, "exp_avg").defined());
      train_step(*engine);
      EXPECT_TRUE(safe_get_local_fp32_param(*engine, weight)
                      .equal(part_of(safe_get_full_fp32_param(*engine, weight))));
      EXPECT_TRUE(safe_get_local_optimizer_state(*engine, weight, "exp_avg")
                      .equal(part_of(safe_get_full_optimizer_state(*engine, weight, "exp_avg"))));
      const at::Tensor values = at::arange(65, at::kFloat).view(weight.sizes()) / 1000;
      safe_set_local_fp32_param(*engine, weight, part_of(values));
      safe_set_local_optimizer_state(*engine, weight, part_of(values), "exp_avg");
      EXPECT_TRUE(safe_get_full_fp32_param(*engine, weight).equal(values));
      EXPECT_TRUE(safe_get_full_optimizer_state(*engine, weight, "exp_avg").equal(values));
      {
        const zero::GatheredParameters gathered({weight});
        EXPECT_TRUE(weight.equal(values.to(weight.scalar_type())));
      }
      EXPECT_ERROR(UsageError, safe_set_local_fp32_param(*engine, weight, values),
                   "parameter 'last.weight': the value has 65 elements, this rank's part of it has ");
      engine->backward(loss_of(*engine, 0));
      EXPECT_TRUE(safe_get_local_grad(*engine, weight).equal(part_of(safe_get_full_grad(*engine, weight))));
      const at::Tensor gradient = (values * 1024).to(weight.scalar_type()).to(at::kFloat);
      safe_set_local_grad(*engine, weight, part_of(gradient));
      EXPECT_TRUE(safe_get_full_grad(*engine, weight).equal(gradient));
    }
  });
}

}  // namespace
}  // namespace deepspeed
