// Makes a tensor over bytes read from a file, checking every number before using it.
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

/// Returns a tensor over the storage, on the storage's device (CPU or meta). Throws CheckpointError if the
/// view does not lie within the storage.
at::Tensor view_of_storage(const at::Storage& storage, const TensorView& view);

}  // namespace deepspeed::checkpoint
