// States of 16 bits.
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/torch/deepspeed_optimizers.h"

#include "tests/optim/torch/class_params.h"
#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

TEST(StateDtype, MomentsMayTakeTheParametersDtype) {
  const Params params = make_params(at::kBFloat16);
  DeepSpeedCPUAdam cpu(params, DeepSpeedCPUAdamOptions().fp32_optimizer_states(false));
  FusedAdam fused(params, FusedAdamOptions().moment_dtype(at::kBFloat16));
  set_gradients(params, 0);
  cpu.step();
  fused.step();
  EXPECT_EQ(cpu.state_of(params[0]).tensors[0].second.scalar_type(), at::kBFloat16);
  EXPECT_EQ(fused.state_bytes(), 2 * 35 * 4);
  const Params mixed = {at::ones({2}), at::ones({2}, at::kBFloat16)};
  DeepSpeedCPUAdam refused(mixed, DeepSpeedCPUAdamOptions().fp32_optimizer_states(false));
  set_gradients(mixed, 0);
  EXPECT_ERROR(UsageError, refused.step(), "fp32_optimizer_states is false", "Float and BFloat16",
               "make an optimizer for each");
}

// A state of 16 bits is the fp32 one, rounded at the end of each step: the first steps agree bit for bit.
TEST(StateDtype, RoundsTheStatesOfFp32ToTheParametersDtype) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const auto state_after_a_step = [&](auto make) {
      const Params params = make_params(dtype);
      set_gradients(params, 0);
      const auto optimizer = make(params);
      optimizer->step();
      return std::pair{params[0].detach().clone(), optimizer->state_of(params[0])};
    };
    const auto expect_rounded = [&](auto make) {
      const auto [wide, wide_state] = state_after_a_step([&](const Params& p) { return make(p, true); });
      const auto [narrow, narrow_state] = state_after_a_step([&](const Params& p) { return make(p, false); });
      EXPECT_TRUE(at::equal(wide, narrow)) << dtype;
      ASSERT_EQ(narrow_state.tensors.size(), wide_state.tensors.size());
      EXPECT_EQ(narrow_state.tensors[0].second.scalar_type(), dtype);
      EXPECT_TRUE(at::equal(narrow_state.tensors[0].second, wide_state.tensors[0].second.to(dtype))) << dtype;
    };
    expect_rounded([](const Params& p, bool fp32) {
      return std::make_unique<DeepSpeedCPULion>(p, DeepSpeedCPULionOptions().fp32_optimizer_states(fp32));
    });
    expect_rounded([](const Params& p, bool fp32) {
      return std::make_unique<DeepSpeedCPUAdagrad>(p,
                                                   DeepSpeedCPUAdagradOptions().fp32_optimizer_states(fp32));
    });
    if (dtype != at::kHalf) continue;  // Adam rounds bf16 stochastically
    expect_rounded([](const Params& p, bool fp32) {
      return std::make_unique<DeepSpeedCPUAdam>(p, DeepSpeedCPUAdamOptions().fp32_optimizer_states(fp32));
    });
  }
}

TEST(StateDtype, ResumesBitForBitInTheParametersDtype) {
  const Params params = make_params(at::kBFloat16), resumed = make_params(at::kBFloat16);
  const auto options = DeepSpeedCPULionOptions().fp32_optimizer_states(false);
  DeepSpeedCPULion first(params, options), second(resumed, options);
  set_gradients(params, 0);
  first.step();
  for (size_t k = 0; k < params.size(); ++k) {
    resumed[k].detach().copy_(params[k].detach());
    second.load_state_of(resumed[k], first.state_of(params[k]));
  }
  EXPECT_EQ(second.state_bytes(), 2 * 35 * 2);
  set_gradients(params, 1);
  set_gradients(resumed, 1);
  first.step();
  second.step();
  for (size_t k = 0; k < params.size(); ++k) EXPECT_TRUE(at::equal(params[k], resumed[k]));
  const Params mixed = {at::ones({2}), at::ones({2}, at::kBFloat16)};
  set_gradients(mixed, 0);
  DeepSpeedCPUAdagrad refused(mixed, DeepSpeedCPUAdagradOptions().fp32_optimizer_states(false));
  EXPECT_ERROR(UsageError, refused.step(), "DeepSpeedCPUAdagrad: fp32_optimizer_states is false",
               "make an optimizer for each");
}

}  // namespace
}  // namespace deepspeed
