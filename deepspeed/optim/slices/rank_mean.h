// Optimizers whose ranks exchange compressed values in place of gradients say by these types what they get,
// and reach the other ranks through them.
#pragma once

#include <cstddef>

#include <ATen/core/Tensor.h>

namespace deepspeed::optim {

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
