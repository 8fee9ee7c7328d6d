// A tensor is made over bytes that were read from a file, with every number checked before it is used.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::checkpoint {

struct TensorView {
  at::ScalarType type = at::kFloat;
  int64_t offset = 0;  // in elements of `type`
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

/// Makes a tensor over the storage, on the meta device where the storage is there. Throws CheckpointError
/// where the view does not lie within the storage.
at::Tensor view_of_storage(const at::Storage& storage, const TensorView& view);

}  // namespace deepspeed::checkpoint
