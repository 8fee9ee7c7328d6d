// What the kernels say of tensors and steps that they cannot take.
#include "deepspeed/kernels/arguments/array_argument.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/grad_stats.h"

#include "tests/kernels/adam_case.h"
#include "tests/kernels/update_case.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

const Case kFloats{4, at::kFloat, at::kFloat, at::ScalarType::Undefined};

TEST(ArrayArgument, LiesWhereTheOthersLie) {
  AdamTensors adam_tensors = make_tensors(kFloats, 1);
  adam_tensors.gradient = at::zeros({4}, at::device(at::kMeta));
  EXPECT_ERROR(UsageError, adam(adam_tensors, hyperparameters()), "gradient lies on meta, expected cpu");
  Arrays arrays = make(LionRule{}, 4, at::kFloat, at::ScalarType::Undefined);
  arrays.states[0] = at::zeros({4}, at::device(at::kMeta));
  EXPECT_ERROR(UsageError, run(LionRule{}, arrays), "s0 lies on meta, expected cpu");
}

TEST(ArrayArgument, LiesOnTheCpuOrAGpu) {
  const at::Tensor nowhere = at::zeros({4}, at::device(at::kMeta));
  EXPECT_ERROR(UsageError, adam({nowhere, nowhere, nowhere, nowhere, {}}, hyperparameters()),
               "the tensors lie on meta, expected CPU or CUDA");
  EXPECT_ERROR(UsageError, update({nowhere, nowhere, {}, {}}, SgdRule{}),
               "the tensors lie on meta, expected CPU or CUDA");
  EXPECT_ERROR(UsageError, grad_stats(nowhere), "gradient lies on meta, expected CPU or CUDA");
}

TEST(ArrayArgument, HasATypeThatKernelsKnow) {
  EXPECT_EQ(element_type(at::kDouble), ElementType::kFloat64);
  EXPECT_ERROR(UsageError, element_type(at::kInt), "dtype Int, expected Float, Half, BFloat16 or Double");
}

TEST(ArrayArgument, TakesACopyOnlyWithAMasterOfFp32) {
  const at::Tensor wide = at::zeros({4}, at::kDouble), copy = at::zeros({4}, at::kHalf);
  EXPECT_ERROR(UsageError, update({wide, wide, copy, {}}, SgdRule{}),
               "low_precision with a master of dtype Double, expected none");
}

TEST(AdamStep, HasAPlaceAndBetasBelowOne) {
  const AdamTensors tensors = make_tensors(kFloats, 1);
  AdamStep step = hyperparameters();
  step.first_index = -1;
  EXPECT_ERROR(UsageError, adam(tensors, step), "first_index is -1, expected 0 or more");
  step = hyperparameters();
  step.beta2 = 1.0;
  EXPECT_ERROR(UsageError, adam(tensors, step), "beta2 is 1, expected a number in [0, 1)");
}

TEST(GradStats, AreZeroForNoElements) {
  const at::Tensor sum = sum_of_squares(at::zeros({0}));
  EXPECT_EQ(sum.scalar_type(), at::kDouble);
  EXPECT_EQ(sum.item<double>(), 0.0);
}

}  // namespace
}  // namespace deepspeed::kernels
