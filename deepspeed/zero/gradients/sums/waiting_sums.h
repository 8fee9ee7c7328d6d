// What a rank has summed in backwards that reduce nothing, until one at the accumulation boundary does:
// stage 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// Has a place for the gradient of every parameter, in flat order. Takes no memory before make().
class WaitingSums {
 public:
  explicit WaitingSums(const ParamStore& store);

  /// options: by group, dtype and device of the sums.
  void make(const std::vector<at::TensorOptions>& options);
  bool is_made() const { return !flat_.empty(); }

  /// Adds a gradient of this rank, of any layout, to its parameter's sum. make() comes first.
  void add(size_t group, size_t param, const at::Tensor& gradient);
  bool has(size_t group, size_t param) const { return has_[group][param]; }
  /// Returns the sum in the parameter's sizes, a view.
  at::Tensor sum(size_t group, size_t param) const;
  /// Returns the sum, which does not wait any more. Its values are there until others are written.
  at::Tensor take(size_t group, size_t param);
  /// From here on all of a group's parameters have sums: what lies at their places.
  void keep_all(size_t group) { has_[group].assign(has_[group].size(), true); }
  /// Forgets all sums, and lets their memory go until the next.
  void clear();

  /// (padded numel) of the group
  const at::Tensor& flat(size_t group) const { return flat_[group]; }
  int64_t bytes() const;

 private:
  const ParamStore& store_;
  std::vector<at::Tensor> flat_;        // [group]; empty: not made
  std::vector<std::vector<bool>> has_;  // [group][param]
};

}  // namespace deepspeed::zero
