#include "deepspeed/kernels/grad_stats.h"

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/cpu/cpu_kernels.h"
#include "deepspeed/kernels/cuda/cuda_kernels.h"

namespace deepspeed::kernels {
namespace {

void check_gradient(const at::Tensor& gradient) {
  check_array("gradient", gradient, {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble});
  if (!gradient.is_cuda() && !gradient.is_cpu()) {
    raise<UsageError>("gradient lies on ", gradient.device(), ", expected CPU or CUDA");
  }
}

double sum_on_cpu(const at::Tensor& gradient) {
  return sum_of_squares_cpu(gradient.const_data_ptr(), element_type(gradient.scalar_type()),
                            gradient.numel());
}

at::Tensor sum_on_cuda(const at::Tensor& gradient) {
  const at::Tensor block_sums = at::empty({kSumOfSquaresBlocks}, gradient.options().dtype(at::kDouble));
  launch_on(gradient.device(), &CudaKernels::sum_of_squares, gradient.const_data_ptr(),
            element_type(gradient.scalar_type()), gradient.numel(), block_sums.data_ptr<double>());
  return block_sums.sum();
}

}  // namespace

at::Tensor sum_of_squares(const at::Tensor& gradient) {
  check_gradient(gradient);
  const auto options = gradient.options().dtype(at::kDouble);
  if (gradient.numel() == 0) {
    return at::zeros({}, options);
  }
  return gradient.is_cuda() ? sum_on_cuda(gradient) : at::full({}, sum_on_cpu(gradient), options);
}

at::Tensor gradient_scale(const at::Tensor& sum_of_squares, double loss_scale, double clip,
                          NonFinite non_finite) {
  check_array("sum_of_squares", sum_of_squares, {at::kDouble});
  if (!sum_of_squares.is_cuda() || sum_of_squares.numel() != 1) {
    raise<UsageError>("sum_of_squares has ", sum_of_squares.numel(), " elements on ", sum_of_squares.device(),
                      ", expected 1 on CUDA; of a number that the host has, "
                      "precision::combined_gradient_scale() makes the scale");
  }
  if (!(loss_scale > 0) || !(clip >= 0)) {
    raise<UsageError>("loss_scale is ", loss_scale, " and clip ", clip,
                      ", expected a positive number and one of at least 0");
  }
  at::Tensor scale = at::empty({}, sum_of_squares.options());
  launch_on(scale.device(), &CudaKernels::gradient_scale, sum_of_squares.const_data_ptr<double>(), loss_scale,
            clip, non_finite == NonFinite::kSkipped, scale.data_ptr<double>());
  return scale;
}

GradStats grad_stats(const at::Tensor& gradient) {
  check_gradient(gradient);
  if (gradient.numel() == 0) {
    return {};
  }
  GradStats stats;
  stats.sum_of_squares = gradient.is_cuda() ? sum_on_cuda(gradient).item<double>() : sum_on_cpu(gradient);
  // A sum of finite fp32 elements never overflows a double: the square of the largest fp32 is 1e77. A double
  // above 1e154 does overflow it, and counts as not finite.
  stats.finite = std::isfinite(stats.sum_of_squares);
  return stats;
}

}  // namespace deepspeed::kernels
