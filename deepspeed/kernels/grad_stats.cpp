#include "deepspeed/kernels/grad_stats.h"

#include <cmath>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/array_argument.h"
#include "deepspeed/kernels/cpu/grad_stats_cpu.h"
#include "deepspeed/kernels/cuda/grad_stats_cuda.h"

namespace deepspeed::kernels {
namespace {

constexpr const char* kGradStatsWhere = "kernels.grad_stats";

double sum_of_squares(const at::Tensor& gradient) {
  if (gradient.is_cuda()) {
    return sum_of_squares_cuda(gradient);
  }
  if (!gradient.is_cpu()) {
    raise<UsageError>(kGradStatsWhere, "gradient lies on ", gradient.device(), ", expected CPU or CUDA");
  }
  return sum_of_squares_cpu(gradient.const_data_ptr(), element_type(kGradStatsWhere, gradient.scalar_type()),
                            gradient.numel());
}

}  // namespace

GradStats grad_stats(const at::Tensor& gradient) {
  check_array(kGradStatsWhere, "gradient", gradient, {at::kFloat, at::kHalf, at::kBFloat16});
  if (gradient.numel() == 0) {
    return {};
  }
  GradStats stats;
  stats.sum_of_squares = sum_of_squares(gradient);
  // The square of the largest fp32 is 1e77: no sum of finite elements leaves the range of double.
  stats.finite = std::isfinite(stats.sum_of_squares);
  return stats;
}

}  // namespace deepspeed::kernels
