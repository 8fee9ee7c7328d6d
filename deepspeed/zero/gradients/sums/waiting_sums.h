// Holds local sums of backwards that do not reduce, until one at the accumulation boundary does (stage 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// Holds a local sum for every parameter's gradient, in flat order. Takes no memory before make().
class WaitingSums {
 public:
  explicit WaitingSums(const ParamStore& store);

  /// Allocates the sums. options: by group, their dtype and device.
  void make(const std::vector<at::TensorOptions>& options);
  bool is_made() const { return !flat_.empty(); }

  /// Adds a gradient of this rank, of any layout, to its parameter's sum. Call make() first.
  void add(size_t group, size_t param, const at::Tensor& gradient);
  bool has(size_t group, size_t param) const { return has_[group][param]; }
  /// Returns the sum as a view in the parameter's sizes.
  at::Tensor sum(size_t group, size_t param) const;
  /// Returns the sum, and has() is false from then on. The values stay until the sum is written again.
  at::Tensor take(size_t group, size_t param);
  /// Makes has() true for all of a group's parameters, whose values are in flat().
  void keep_all(size_t group) { has_[group].assign(has_[group].size(), true); }
  /// Forgets all sums and lends their memory to other tensors until new sums are made.
  void clear();

  /// Returns the group's buffer, (padded numel).
  const at::Tensor& flat(size_t group) const { return flat_[group]; }
  int64_t bytes() const;

 private:
  const ParamStore& store_;
  std::vector<at::Tensor> flat_;        // [group]; empty before make()
  std::vector<std::vector<bool>> has_;  // [group][param]
};

}  // namespace deepspeed::zero
