// A script writes weights in place between steps; the masters beside them follow, wherever they are.
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/engine/tensor_access.h"

#include "tests/engine/make_engine.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

// Stage, type of the weights, home of the optimizer.
class WrittenWeights : public ::testing::TestWithParam<std::tuple<int, const char*, const char*>> {
 protected:
  Json config() const {
    const auto [stage, type, home] = GetParam();
    Json result = basic(
        {{type, {{"enabled", true}}}, {"log_level", "error"}, {"zero_optimization", {{"stage", stage}}}});
    if (type == std::string("fp16")) result["fp16"]["initial_scale_power"] = 4;
    if (home != std::string("none")) {
      result["zero_optimization"]["offload_optimizer"] = {{"device", home}, {"nvme_path", folder_.string()}};
    }
    return result;
  }

 private:
  const TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Homes, WrittenWeights,
                         ::testing::Values(std::tuple(0, "bf16", "none"), std::tuple(1, "bf16", "none"),
                                           std::tuple(1, "fp16", "cpu"), std::tuple(2, "bf16", "none"),
                                           std::tuple(2, "bf16", "cpu"), std::tuple(2, "fp16", "nvme")));

TEST_P(WrittenWeights, CountInTheNextStep) {
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_engine(config(), world);
    for (int64_t step = 0; step < 3; ++step) train_step(*engine, 4 * step);
    const auto params = engine->module().named_parameters();
    const at::Tensor& written = params["first.weight"];
    const at::Tensor& untouched = params["last.bias"];
    const at::Tensor master = safe_get_full_fp32_param(*engine, written).clone();
    const at::Tensor other = safe_get_full_fp32_param(*engine, untouched).clone();
    EXPECT_FALSE(master.equal(written.detach().to(at::kFloat)));  // it has more than the weight
    {
      const c10::NoGradGuard no_grad;
      written[0].fill_(0.25);
      untouched.mul_(1.0);  // nothing changes
    }
    at::Tensor expected = master.clone();
    expected[0].fill_(0.25);
    EXPECT_TRUE(safe_get_full_fp32_param(*engine, written).equal(expected));
    EXPECT_TRUE(safe_get_full_fp32_param(*engine, untouched).equal(other));
    {
      const c10::NoGradGuard no_grad;
      written[0].fill_(-0.5);
    }
    engine->set_lr(0.0);
    train_step(*engine, 100);
    expected[0].fill_(-0.5);
    EXPECT_TRUE(safe_get_full_fp32_param(*engine, written).equal(expected));
    EXPECT_TRUE(written.detach()[0].eq(-0.5).all().item<bool>());
  });
}

TEST(WrittenSplitWeights, AreAllowedBeforeABackwardThatBeginsTheStep) {
  const auto engine = make_engine(
      basic({{"log_level", "error"},
             {"gradient_clipping", 0.0},
             {"bf16", {{"enabled", true}, {"split_master_weights", true}}},
             {"zero_optimization",
              {{"stage", 2}, {"offload_optimizer", {{"device", "cpu"}, {"super_offload", true}}}}}}));
  for (int64_t step = 0; step < 2; ++step) {
    const c10::NoGradGuard no_grad;
    engine->module().named_parameters()["first.weight"].mul_(0.5);
    const at::AutoGradMode with_grad(true);
    train_step(*engine, 4 * step);
  }
  EXPECT_EQ(engine->global_steps(), 2);
}

TEST_P(WrittenWeights, AreSaved) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_engine(config(), world);
    train_step(*engine);
    {
      const c10::NoGradGuard no_grad;
      engine->module().named_parameters()["first.weight"].fill_(0.25);
    }
    engine->save_checkpoint(folder.path());
    const auto other = make_engine(config(), world);
    other->load_checkpoint(folder.path());
    const at::Tensor weight = other->module().named_parameters()["first.weight"];
    EXPECT_TRUE(weight.eq(0.25).all().item<bool>());
    EXPECT_TRUE(safe_get_full_fp32_param(*other, weight).eq(0.25).all().item<bool>());
  });
}

TEST_P(WrittenWeights, AreNotWrittenByTraining) {
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_engine(config(), world);
    const auto versions = [&] {
      std::vector<int64_t> result;
      for (const at::Tensor& param : engine->module().parameters())
        result.push_back(static_cast<int64_t>(param._version()));
      return result;
    };
    const auto before = versions();
    for (int64_t step = 0; step < 2; ++step) train_step(*engine, 4 * step);
    EXPECT_EQ(versions(), before);
  });
}

}  // namespace
}  // namespace deepspeed::testing
