// Which gradients of this rank were not finite before they were added to those of other ranks: noted beside
// the reductions, read only where a step is skipped.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/zero/gradients/buckets/bucket.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// A parameter of the store, by its places.
struct ParamPlace {
  size_t group = 0;
  size_t param = 0;
};

class NonFiniteGradients {
 public:
  /// `store` must outlive it.
  explicit NonFiniteGradients(const ParamStore& store) : store_(store) {}

  /// Notes the gradients of a bucket's parameters, in their order, and waits for no device.
  void note(const Bucket& bucket, const std::vector<at::Tensor>& gradients);
  void clear() { largest_.clear(); }
  /// The parameter with such a gradient since clear() that lies last in its group, nearest to the loss. Waits
  /// for the device.
  std::optional<ParamPlace> first() const;

 private:
  void make_room();

  const ParamStore& store_;
  // [group], (parameters in flat order) fp32: the largest element that was noted, or what is not finite; on
  // the CPU 0 stands for all that are. Empty where nothing was noted.
  std::vector<at::Tensor> largest_;
};

}  // namespace deepspeed::zero
