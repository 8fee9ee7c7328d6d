// A plan decides which records a file needs for the tensors of a value, and where each tensor lies in them.
//
// Tensors of one storage that overlap (tied weights, a view and its whole) share a record; tensors that lie
// side by side in one storage (parameters in a flat buffer) get a record each, so that no file drags a whole
// buffer along.
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

  /// Plans for every tensor inside `value`. Throws UsageError for an undefined, sparse or quantized tensor,
  /// and for one on the meta device unless `deferred`: its data comes later.
  explicit StoragePlan(const Value& value, bool deferred = false);

  const Placement& placement(const at::Tensor& tensor) const;
  /// Returns the elements of each record: 1-D, contiguous, on the tensor's own device.
  const std::vector<at::Tensor>& records() const { return records_; }

 private:
  std::vector<at::Tensor> records_;
  std::unordered_map<const void*, Placement> placements_;  // by TensorImpl
};

}  // namespace deepspeed::checkpoint
