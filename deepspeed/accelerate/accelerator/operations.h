// Collectives over tensors, and over values that hold tensors, with Accelerate's names.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/tensor/visit_tensors.h"

namespace deepspeed::accelerate {

/// Returns the tensors of all ranks, one after the other along the first dimension. A tensor without
/// dimensions becomes one of length world size. Sizes must be equal on all ranks.
DEEPSPEED_API at::Tensor gather_tensor(const comm::ProcessGroup& group, const at::Tensor& tensor);
/// Returns the sum or the mean over the ranks, times `scale`. reduction: "mean", "sum", or "none", which only
/// scales. Throws UsageError for another one.
DEEPSPEED_API at::Tensor reduce_tensor(const comm::ProcessGroup& group, const at::Tensor& tensor,
                                       const std::string& reduction, double scale);
/// Returns the tensor, padded by `pad_index` along `dim` to the largest size of all ranks. A tensor without
/// this dimension is returned as it is.
DEEPSPEED_API at::Tensor pad_tensor(const comm::ProcessGroup& group, const at::Tensor& tensor, int64_t dim,
                                    int64_t pad_index, bool pad_first);

/// Returns a copy of `value`, a tensor or a type that visit_tensors() knows, with each tensor replaced.
template <class T, class Function>
T map_tensors(T value, const Function& function) {
  visit_tensors(value, [&](at::Tensor& tensor) { tensor = function(tensor); });
  return value;
}

}  // namespace deepspeed::accelerate
