// The strategy of a reducer: how a window's gradients are kept until the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/zero/gradients/reducer_parts.h"

namespace deepspeed::zero {

/// Keeps an accumulation window's gradients for the reducer. It calls only BucketPlan, BucketSum and
/// GradWindow.
class GradKeeper {
 public:
  virtual ~GradKeeper() = default;
  GradKeeper(const GradKeeper&) = delete;
  GradKeeper& operator=(const GradKeeper&) = delete;

  /// Takes the gradient out of its parameter, and starts the sums of complete buckets.
  virtual void take_gradient(size_t group, size_t param) = 0;
  /// Starts the sums of complete buckets, unless the strategy waits for the end of backward.
  virtual void launch_complete() = 0;
  /// Ends a backward, and reduces its gradients if they are due. Missing gradients count as zeros.
  virtual void complete_backward() = 0;
  /// Ends a backward whose gradients are to be dropped. Completes collectives that other ranks may have
  /// begun.
  virtual void abandon_backward() = 0;
  /// Prepares the step after a reduced window. Takes grads that the program replaced, and sums over replicas.
  virtual void complete_reduced_window() = 0;
  virtual void clear_window() = 0;
  /// Notes that the buckets got other sizes.
  virtual void forget_bucket_sizes() {}

  /// Returns the reduced gradient of a group's owned interval.
  virtual at::Tensor gradient(size_t group) const = 0;
  /// Returns the elements `part` of gradient(group). Waits only for these if gradients are being copied to
  /// the host.
  virtual at::Tensor gradient(size_t group, const Interval& part) const {
    return gradient(group).narrow(0, part.begin, part.numel());
  }
  /// Returns this rank's local sum of a parameter's gradient; undefined if there is none.
  virtual at::Tensor local_gradient(size_t group, size_t param) const = 0;
  /// Returns this rank's local sums of a group, (padded numel) in flat order. Undefined if none are kept.
  virtual at::Tensor local_gradients(size_t) const { return {}; }
  /// Makes gradient() return the owned part of a flat tensor until clear_window(). Returns false if the
  /// strategy cannot.
  virtual bool set_gradients(size_t, at::Tensor) { return false; }
  /// Takes the contents of the parameters' grads as reduced gradients. Returns whether there are any.
  virtual bool put_given_grads() { return false; }
  /// Returns a function that blocks until the gradients in a part of a group are in host memory; any thread
  /// may call it. Null if they stay on the device.
  virtual std::function<void()> hand_over(size_t, const Interval&) { return nullptr; }
  /// Returns, by [group][param], which parameters got a gradient in this window.
  virtual const std::vector<std::vector<bool>>& used() const = 0;
  /// Returns the bytes of gradients held between steps, without temporary buckets.
  virtual int64_t bytes() const = 0;

 protected:
  GradKeeper() = default;
};

/// Makes the keeper for stage 0, and for stage 1 with optimizers that compress exchanges. `parts` must
/// outlive it.
std::unique_ptr<GradKeeper> make_full_keeper(ReducerParts& parts);
/// Makes the keeper for stages 1 to 3. `parts` must outlive it.
std::unique_ptr<GradKeeper> make_partitioned_keeper(ReducerParts& parts);

}  // namespace deepspeed::zero
