// Parameters that the partitions of ZeRO cut, for optimizers whose update of one element reads the whole
// parameter: how a rank reaches the parts that lie on other ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::optim {

/// A parameter of which several ranks may have a part.
struct CutParameter {
  int64_t param_index = 0;     // in the group's param_names
  std::vector<int64_t> shape;  // of the whole parameter
};

/// Those of one slice. All ranks call the same functions in the same order, whatever their slices hold.
class CutParameters {
 public:
  virtual ~CutParameters() = default;

  /// In flat order, the same on every rank.
  virtual const std::vector<CutParameter>& all() const = 0;
  /// Where large arithmetic belongs: where the model is. The slice may be in host memory.
  virtual at::Device device() const = 0;
  /// Adds up `values`, of one size on all ranks, in place.
  virtual void sum(const at::Tensor& values) const = 0;

  /// A tensor of the sizes of one of all(), on this rank.
  struct Part {
    size_t index = 0;   // in all()
    at::Tensor values;  // (n), fp32, this rank's elements of it; undefined where it has none
  };
  /// Returns a flat tensor of its argument's size. whole: all()[index], flat, on device().
  using Change = std::function<at::Tensor(size_t index, const at::Tensor& whole)>;
  /// What `change` makes of each whole tensor: this rank's parts of the results, where `parts` are, in their
  /// order; undefined ones stay so. The ranks share the calls of `change`.
  virtual std::vector<at::Tensor> change_whole(const std::vector<Part>& parts,
                                               const Change& change) const = 0;
};

}  // namespace deepspeed::optim
