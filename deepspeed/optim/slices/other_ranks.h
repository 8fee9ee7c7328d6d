// What optimizers of flat slices reach on other ranks, though they see no process group: parameters that the
// partitions of ZeRO cut, where the update of one element reads the whole parameter, and means over ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::optim {

/// Names a parameter of which several ranks may have a part.
struct CutParameter {
  int64_t param_index = 0;     // in the group's param_names
  std::vector<int64_t> shape;  // of the whole parameter
};

/// Reaches the cut parameters of one slice. All ranks call the same functions in the same order, whatever
/// their slices hold.
class CutParameters {
 public:
  virtual ~CutParameters() = default;

  /// Lists all cut parameters of the group, in flat order: the same list on every rank.
  virtual const std::vector<CutParameter>& all() const = 0;
  /// Returns the device for large arithmetic, where the model is; the slice may be in host memory.
  virtual at::Device device() const = 0;
  /// Adds up `values`, of one size on all ranks, in place.
  virtual void sum(const at::Tensor& values) const = 0;
  /// Takes the largest of `values`, of one size on all ranks, in place.
  virtual void max(const at::Tensor& values) const = 0;

  /// Holds this rank's part of a tensor that has the sizes of one of all().
  struct Part {
    size_t index = 0;   // in all()
    at::Tensor values;  // (n), fp32, this rank's elements of it; undefined where it has none
  };
  /// Changes a whole parameter's tensor; returns a flat one of its size. whole: of all()[index], flat, on
  /// device().
  using Change = std::function<at::Tensor(size_t index, const at::Tensor& whole)>;
  /// Brings the ranks' parts of each tensor together, calls `change` with the whole, and returns this rank's
  /// parts of the results, in the order of `parts`; undefined ones stay so. The ranks share the calls of
  /// `change`.
  virtual std::vector<at::Tensor> change_whole(const std::vector<Part>& parts,
                                               const Change& change) const = 0;
};

/// Says what FlatSlice::gradient holds in a step.
enum class GradientUse {
  kMean,      // the mean of the ranks' gradients
  kMomentum,  // the ranks' mean, in fp32, of beta1 times exp_avg plus (1 - beta1) times the own gradient
  kOwn,       // this rank's own gradient: the step reaches the other ranks through FlatSlice::ranks
};

/// Takes means over the ranks that train alike, in 1 bit an element.
class RankMean {
 public:
  virtual ~RankMean() = default;

  /// Replaces `values`, (n) fp32 over the whole flat space of the group, by their mean over the ranks. What
  /// compression takes from it is added to the next mean of the group. Collective.
  virtual void mean(size_t group, const at::Tensor& values) const = 0;
  /// Forgets what compression took from earlier means of the group; all ranks do so.
  virtual void forget(size_t group) const = 0;
};

}  // namespace deepspeed::optim
