// The functions of the cpu_adam op, with tensors that the caller keeps.
#include "deepspeed/optim/torch/cpu_adam_op.h"

#include <string>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/optim/algorithms/float64_reference.h"
#include "tests/optim/slices/slices.h"
#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

using testing::error_of;

optim::Hyperparameters hyperparameters_of_test() {
  optim::Hyperparameters h;
  h.set("lr", 0.01);
  h.set("betas", std::pair{0.8, 0.95});
  h.set("eps", 1e-6);
  h.set("weight_decay", 0.1);
  h.set("bias_correction", false);
  return h;
}

TEST(CpuAdamOp, UpdatesTensorsOfTheCallerAsTheReferenceDoes) {
  CpuAdamOp op;
  op.create_adam(7, 1e-3, 0.9, 0.999, 1e-8, 0, /*adamw_mode=*/false, /*should_log=*/true);
  op.create_adam(8);
  for (const int64_t id : {7, 8}) {
    const auto gradients = optim::test_gradients(101, {5, 7});
    const at::Tensor p = gradients[100].clone(), m = at::zeros({5, 7}), v = at::zeros({5, 7});
    optim::reference::Parameter expected{p.to(at::kDouble), {}, 0};
    for (int64_t step = 1; step <= 100; ++step) {
      const at::Tensor& g = gradients[static_cast<size_t>(step - 1)];
      op.adam_update(id, step, 0.01, 0.8, 0.95, 1e-6, 0.1, false, p, g, m, v);
      optim::reference::adam(expected, g.to(at::kDouble), hyperparameters_of_test(), /*decoupled=*/id == 8,
                             false);
    }
    EXPECT_LT((p.to(at::kDouble) - expected.p).abs().max().item<double>(), 100 * (1.2e-7 + 2e-4 * 0.01))
        << id;
    EXPECT_LT((m.to(at::kDouble) - expected.of("exp_avg")).abs().max().item<double>(), 1e-6) << id;
  }
}

TEST(CpuAdamOp, KeepsWeightsAndMomentsInSixteenBits) {
  CpuAdamOp op;
  op.create_adam(0);
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const at::Tensor g = optim::test_gradients(1, {33})[0].to(dtype);
    const at::Tensor p = at::ones({33}, dtype), m = at::zeros({33}, dtype), v = at::zeros({33}, at::kFloat);
    const at::Tensor wide = at::ones({33}), wide_m = at::zeros({33}), wide_v = at::zeros({33});
    op.adam_update(0, 1, 0.01, 0.9, 0.999, 1e-8, 0.1, true, p, g, m, v);
    op.adam_update(0, 1, 0.01, 0.9, 0.999, 1e-8, 0.1, true, wide, g, wide_m, wide_v);
    EXPECT_TRUE(at::equal(p, wide.to(dtype))) << dtype;
    EXPECT_TRUE(at::equal(m, wide_m.to(dtype))) << dtype;
    EXPECT_TRUE(at::equal(v, wide_v)) << dtype;
  }
}

TEST(CpuAdamOp, TakesAnUpdateBack) {
  CpuAdamOp op;
  op.create_adam(0);
  const auto gradients = optim::test_gradients(3, {101});
  const at::Tensor p = gradients[2].clone(), m = at::zeros({101}), v = at::zeros({101});
  op.adam_update(0, 1, 0.01, 0.9, 0.999, 1e-8, 0.1, true, p, gradients[0], m, v);
  const at::Tensor p1 = p.clone(), m1 = m.clone(), v1 = v.clone();
  op.adam_update(0, 2, 0.01, 0.9, 0.999, 1e-8, 0.1, true, p, gradients[1], m, v);
  op.adam_rollback(0, 2, 0.01, 0.9, 0.999, 1e-8, 0.1, true, p, gradients[1], m, v);
  EXPECT_TRUE(at::allclose(p, p1, 0, 1e-6));
  EXPECT_TRUE(at::allclose(m, m1, 0, 1e-6));
  EXPECT_TRUE(at::allclose(v, v1, 0, 1e-6));
  EXPECT_FALSE(at::allclose(p, gradients[2], 0, 1e-3));
}

TEST(CpuAdamOp, KnowsTheNumbersOfItsOptimizers) {
  CpuAdamOp op;
  op.create_adam(3);
  EXPECT_NE(error_of<UsageError>([&] { op.create_adam(3); }).find("optimizer 3 already"), std::string::npos);
  op.destroy_adam(3);
  const at::Tensor t = at::ones({2});
  EXPECT_NE(error_of<UsageError>([&] { op.destroy_adam(3); }).find("no optimizer 3"), std::string::npos);
  EXPECT_ERROR(UsageError, op.adam_update(3, 1, 0.01, 0.9, 0.999, 1e-8, 0, true, t, t, t, t),
               "adam_update(): no optimizer 3", "create_adam()");
  op.create_adam(3);
  const at::Tensor half = at::ones({2}, at::kHalf);
  EXPECT_NE(error_of<UsageError>([&] {
              op.adam_rollback(3, 1, 0.01, 0.9, 0.999, 1e-8, 0, true, half, t, t.clone(), t.clone());
            }).find("dtype Half"),
            std::string::npos);
}

}  // namespace
}  // namespace deepspeed
