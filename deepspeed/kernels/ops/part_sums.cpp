#include "deepspeed/kernels/ops/part_sums.h"

#include <ATen/ops/empty_like.h>

#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/arguments/op_arguments.h"
#include "deepspeed/kernels/cuda/cuda_kernels.h"

namespace deepspeed::kernels {
namespace {

at::Tensor sum_on_cpu(const PartedGradient& gradient) {
  const at::Tensor& parts = gradient.parts;
  return parts.defined() ? parts.sum(0).to(gradient.parameter.scalar_type()) : parts;
}

}  // namespace

std::array<at::Tensor, 2> sums_of_parts(const PartedGradient& first, const PartedGradient& second) {
  const PartedGradient& any = first.parts.defined() ? first : second;
  if (!any.parts.defined()) return {};
  if (!any.parts.is_cuda()) return {sum_on_cpu(first), sum_on_cpu(second)};
  PartSumsArrays arrays;
  arrays.num_parts = any.parts.size(0);
  arrays.columns = any.parts.size(1);
  arrays.type = element_type(any.parameter.scalar_type());
  std::array<at::Tensor, 2> sums;
  const std::array<const PartedGradient*, 2> gradients = {&first, &second};
  int next = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (!gradients[i]->parts.defined()) continue;
    sums[i] = at::empty_like(gradients[i]->parameter, at::MemoryFormat::Contiguous);
    arrays.parts[next] = gradients[i]->parts.const_data_ptr();
    arrays.sums[next++] = sums[i].data_ptr();
  }
  launch_on(any.parts.device(), arrays);
  return sums;
}

}  // namespace deepspeed::kernels
