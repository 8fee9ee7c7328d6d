// Gives optimizers of flat slices access to other ranks, though they see no process group. An optimizer needs
// this access for parameters that ZeRO's partitions cut, if its update of one element reads the whole
// parameter. Means over ranks need it too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::optim {

/// Names a parameter that may be divided among several ranks.
struct CutParameter {
  int64_t param_index = 0;     // in the group's param_names
  std::vector<int64_t> shape;  // of the whole parameter
};

/// Gives access to the cut parameters of one slice's group. All ranks call the same functions in the same
/// order, whatever their slices hold.
class CutParameters {
 public:
  virtual ~CutParameters() = default;

  /// Lists all cut parameters of the group in flat order, equal on every rank.
  virtual const std::vector<CutParameter>& all() const = 0;
  /// Returns the device for large arithmetic: the model's. The slice may be in host memory.
  virtual at::Device device() const = 0;
  /// Replaces `values`, of equal size on all ranks, by their sums over the ranks.
  virtual void sum(const at::Tensor& values) const = 0;
  /// Replaces `values`, of equal size on all ranks, by their maxima over the ranks.
  virtual void max(const at::Tensor& values) const = 0;

  /// Holds this rank's part of a tensor as large as a parameter of all().
  struct Part {
    size_t index = 0;   // in all()
    at::Tensor values;  // (n), fp32, this rank's elements; undefined if it has none
  };
  /// Returns the new values of a whole tensor, flat. `whole` holds the old values, flat, on device(). The
  /// tensor is as large as the parameter all()[index].
  using Change = std::function<at::Tensor(size_t index, const at::Tensor& whole)>;
  /// Assembles each tensor from the ranks' parts and calls `change` with the whole. Returns this rank's parts
  /// of the results in the order of `parts`; undefined ones stay undefined. Each call of `change` runs on one
  /// rank.
  virtual std::vector<at::Tensor> change_whole(const std::vector<Part>& parts,
                                               const Change& change) const = 0;
};

/// Says what FlatSlice::gradient holds in a step.
enum class GradientUse {
  kMean,      // mean of the ranks' gradients
  kMomentum,  // the ranks' mean, in fp32, of beta1 * exp_avg + (1 - beta1) * own gradient
  kOwn,       // this rank's own gradient; the step reaches other ranks through FlatSlice::ranks
};

/// Computes means over the data-parallel ranks, with 1 bit per element.
class RankMean {
 public:
  virtual ~RankMean() = default;

  /// Replaces `values`, (n) fp32 over the group's whole flat space, by the ranks' mean. The compression error
  /// is kept, and added to the values of the group's next mean. Collective.
  virtual void mean(size_t group, const at::Tensor& values) const = 0;
  /// Drops the compression errors of the group's earlier means. All ranks must call it.
  virtual void forget(size_t group) const = 0;
};

}  // namespace deepspeed::optim
