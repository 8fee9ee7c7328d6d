// Where the gradients of a window are kept until the step: the strategy of a reducer.
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

/// The reducer calls it, and it calls nobody but the parts below: the plan, the sums over ranks, the window.
class GradKeeper {
 public:
  virtual ~GradKeeper() = default;
  GradKeeper(const GradKeeper&) = delete;
  GradKeeper& operator=(const GradKeeper&) = delete;

  /// Takes the gradient out of its parameter, and launches the buckets that are complete.
  virtual void take_gradient(size_t group, size_t param) = 0;
  /// Launches the buckets that are complete, unless the strategy leaves that to the end of backward.
  virtual void launch_complete() = 0;
  /// Reduces what the end of a backward is to reduce. Missing gradients count as zeros.
  virtual void complete_backward() = 0;
  /// Ends a backward whose gradients are given up, after the collectives that other ranks may have begun.
  virtual void abandon_backward() = 0;
  /// Ends a window whose last backward has reduced.
  virtual void complete_reduced_window() = 0;
  virtual void clear_window() = 0;
  /// Says that buckets of other sizes follow.
  virtual void forget_bucket_sizes() {}

  /// The reduced gradient of the owned interval of a group.
  virtual at::Tensor gradient(size_t group) const = 0;
  /// Returns the elements `part` of gradient(group). Where gradients are on their way to the host, it waits
  /// for these alone.
  virtual at::Tensor gradient(size_t group, const Interval& part) const {
    return gradient(group).narrow(0, part.begin, part.numel());
  }
  /// What this rank alone has summed of a parameter's gradient; undefined where there is none.
  virtual at::Tensor local_gradient(size_t group, size_t param) const = 0;
  /// What this rank alone has summed of a group, (padded numel); undefined where it keeps no such sum.
  virtual at::Tensor local_gradients(size_t) const { return {}; }
  /// Replaces gradient() until clear_window(). Returns false where it cannot.
  virtual bool set_gradients(size_t, at::Tensor) { return false; }
  /// Takes what the program has put into the parameters' grads as reduced gradients. Returns whether there
  /// is any.
  virtual bool put_given_grads() { return false; }
  /// Returns a function that waits on another thread until a part is there in host memory; null where the
  /// part is on the device.
  virtual std::function<void()> hand_over(size_t, const Interval&) { return nullptr; }
  /// Tells, by [group][param], which parameters got a gradient in this window.
  virtual const std::vector<std::vector<bool>>& used() const = 0;
  /// Bytes of gradients held between steps, transient buckets not counted.
  virtual int64_t bytes() const = 0;

 protected:
  GradKeeper() = default;
};

/// Stage 0, and stage 1 with optimizers that compress what ranks exchange. `parts` must outlive it.
std::unique_ptr<GradKeeper> make_full_keeper(ReducerParts& parts);
/// Stages 1 to 3. `parts` must outlive it.
std::unique_ptr<GradKeeper> make_partitioned_keeper(ReducerParts& parts);

}  // namespace deepspeed::zero
