// Parameters that the partitions of ZeRO cut, for optimizers whose update of one element reads the whole
// parameter: how a rank reaches the parts that lie on other ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::optim {

/// A parameter of which several ranks have a part.
struct CutParameter {
  int64_t param_index = 0;     // in the group's param_names
  std::vector<int64_t> shape;  // of the whole parameter
};

/// Those of one group. All ranks call the same functions in the same order, whatever their slices hold.
class CutParameters {
 public:
  virtual ~CutParameters() = default;

  /// In flat order, the same on every rank.
  virtual const std::vector<CutParameter>& all() const = 0;
  /// Adds up `values`, of one size on all ranks, in place.
  virtual void sum(const at::Tensor& values) const = 0;
  /// The whole of all()[index], flat, made of the ranks' parts of it; `part` is this rank's (1-D), undefined
  /// where it has none. Ranks without a part get an undefined tensor.
  virtual at::Tensor join(size_t index, const at::Tensor& part) const = 0;
};

}  // namespace deepspeed::optim
