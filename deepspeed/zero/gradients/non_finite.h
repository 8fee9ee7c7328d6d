// Notes which gradients of this rank were not finite before the sum over ranks. It is read only if a step is
// skipped.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/zero/gradients/buckets/bucket.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// Identifies a parameter of the store by its indices.
struct ParamPlace {
  size_t group = 0;
  size_t param = 0;
};

class NonFiniteGradients {
 public:
  /// `store` must outlive this object.
  explicit NonFiniteGradients(const ParamStore& store) : store_(store) {}

  /// Notes which gradients of a bucket's parameters, in order, are not finite. Does not wait for the device.
  void note(const Bucket& bucket, const std::vector<at::Tensor>& gradients);
  void clear() { largest_.clear(); }
  /// Returns the last parameter (in flat order) with a non-finite gradient since clear(), if any. It is
  /// nearest to the loss. Waits for the device.
  std::optional<ParamPlace> nearest_loss() const;

 private:
  void make_room();

  const ParamStore& store_;
  // [group], (parameters in flat order) fp64: the largest element noted, or a non-finite one. On the CPU 0
  // stands for all finite values. Empty if nothing was noted.
  std::vector<at::Tensor> largest_;
};

}  // namespace deepspeed::zero
