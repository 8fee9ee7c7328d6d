// Decides which records a file needs for the tensors of a value, and where each tensor lies in them.
//
// Tensors of one storage that overlap (tied weights, a view and its base) share a record. Adjacent tensors
// (parameters in a flat buffer) get their own records, so that no file includes a whole buffer.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

class StoragePlan {
 public:
  struct Placement {
    size_t record = 0;
    int64_t offset = 0;  // in elements
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };

  /// Plans records for every tensor in `value`. Throws UsageError for an undefined, sparse or quantized
  /// tensor. A tensor on the meta device is allowed only if `deferred`, because its data is provided later.
  explicit StoragePlan(const Value& value, bool deferred = false);

  const Placement& placement(const at::Tensor& tensor) const;
  /// Returns the elements of each record: 1-D, contiguous, on the tensor's own device.
  const std::vector<at::Tensor>& records() const { return records_; }

 private:
  std::vector<at::Tensor> records_;
  std::unordered_map<const void*, Placement> placements_;  // by TensorImpl
};

}  // namespace deepspeed::checkpoint
