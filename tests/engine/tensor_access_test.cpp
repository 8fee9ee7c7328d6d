#include "deepspeed/engine/tensor_access.h"

#include <ATen/ops/arange.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/make_engine.h"
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
      for (const int stage : {0, 1, 2}) {
        const auto engine = make_engine(config_of(stage, bf16), world);
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
    for (const int variant : {0, 1, 2, 3, 4, 5}) {
      const auto engine = make_engine(config_of(variant / 2, /*bf16=*/variant % 2 == 1), world);
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
  EXPECT_THROW(safe_get_full_fp32_param(*engine, params["frozen"]), UsageError);
  EXPECT_THROW(safe_get_full_fp32_param(*engine, at::Tensor()), UsageError);
  const at::Tensor weight = params["last.weight"];
  EXPECT_THROW(safe_set_full_optimizer_state(*engine, weight, weight, "exp_avg"), UsageError);
  EXPECT_THROW(safe_set_full_fp32_param(*engine, weight, weight.view({-1}).narrow(0, 0, 3)), UsageError);
  train_step(*engine);
  try {
    safe_get_full_optimizer_state(*engine, weight, "momentum");
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("it has 'exp_avg', 'exp_avg_sq'"));
  }
  EXPECT_THROW(safe_get_full_grad(*engine, weight), NotSupportedError);
  EXPECT_THROW(safe_set_full_grad(*engine, weight, weight), NotSupportedError);
}

}  // namespace
}  // namespace deepspeed
