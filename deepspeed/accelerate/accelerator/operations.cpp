#include "deepspeed/accelerate/accelerator/operations.h"

#include <algorithm>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/functions.h"

namespace deepspeed::accelerate {

at::Tensor gather_tensor(const comm::ProcessGroup& group, const at::Tensor& tensor) {
  const at::Tensor own = (tensor.dim() == 0 ? tensor.view({1}) : tensor).detach().contiguous();
  std::vector<int64_t> sizes = own.sizes().vec();
  sizes[0] *= group.size();
  at::Tensor all = at::empty(sizes, own.options());
  comm::all_gather_into_tensor(all, own, group);
  return all;
}

at::Tensor reduce_tensor(const comm::ProcessGroup& group, const at::Tensor& tensor,
                         const std::string& reduction, double scale) {
  if (reduction != "mean" && reduction != "sum" && reduction != "none")
    raise<UsageError>("reduction is '", reduction, "', expected mean, sum or none");
  at::Tensor result = tensor.detach().clone(at::MemoryFormat::Contiguous);
  if (reduction != "none") comm::all_reduce(result, comm::ReduceOp::kSum, group);
  if (reduction == "mean") result = result.div(group.size());
  return scale == 1.0 ? result : result.mul(scale);
}

at::Tensor pad_tensor(const comm::ProcessGroup& group, const at::Tensor& tensor, int64_t dim,
                      int64_t pad_index, bool pad_first) {
  if (dim >= tensor.dim() || dim < -tensor.dim()) return tensor;
  const int64_t axis = dim < 0 ? dim + tensor.dim() : dim;
  const at::Tensor size =
      at::full({1}, tensor.size(axis), at::TensorOptions(at::kLong).device(tensor.device()));
  const int64_t most = gather_tensor(group, size).max().item<int64_t>();
  if (most == tensor.size(axis)) return tensor;
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes[static_cast<size_t>(axis)] = most;
  at::Tensor padded = at::full(sizes, pad_index, tensor.options());
  const int64_t begin = pad_first ? most - tensor.size(axis) : 0;
  padded.narrow(axis, begin, tensor.size(axis)).copy_(tensor);
  return padded;
}

}  // namespace deepspeed::accelerate
