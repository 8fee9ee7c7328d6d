// super_offload: a worker steps slices in host memory as soon as backward has their gradients.
//
// After Lian et al., "SuperOffload" (arXiv 2509.21271). This code does what DeepSpeed's option of that
// name does without clipping.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include <c10/core/Device.h>

#include "deepspeed/device/threads/ordered_worker.h"
#include "deepspeed/optim/slices/param_group.h"
#include "deepspeed/zero/offload/slice_arrivals.h"

namespace deepspeed::zero {

/// Tracks the step of one accumulation window, from its first slice to end(). One thread at a time calls it.
/// The slices' steps run in a worker thread.
class StepAhead {
 public:
  /// Reports a slice's step: its sum of squared gradients, and whether it was stepped.
  struct Outcome {
    double sum_of_squares = 0.0;
    bool is_stepped = false;
  };
  using Step = std::function<Outcome()>;

  /// cores: those the worker runs on. device: the model's.
  StepAhead(const device::Cores& cores, at::Device device);

  bool has_begun() const { return arrivals_.has_value(); }
  /// Begins a window's step. slices: all of this rank's. parts: the pieces in which their gradients arrive.
  /// groups: with the hyperparameters that the steps use.
  void begin(std::vector<OwnedPart> slices, const std::vector<OwnedPart>& parts,
             const std::vector<optim::ParamGroup>& groups);
  /// Returns a group's hyperparameters as they were at begin().
  const optim::Hyperparameters& options(size_t group) const { return options_[group]; }
  /// Returns the lowest index of a group whose hyperparameters have changed since begin(), if any.
  std::optional<size_t> changed_group(const std::vector<optim::ParamGroup>& groups) const;
  /// Notes that a part of the gradients has arrived. Returns the indices of slices that it completes.
  std::vector<size_t> note(const OwnedPart& part) { return arrivals_->note(part); }

  /// Queues a slice's step for the worker. slice: its index.
  void add(size_t slice, Step step);
  /// Returns the slices given to the worker, in that order.
  const std::vector<size_t>& order() const { return order_; }
  bool was_given(size_t slice) const { return places_[slice].has_value(); }
  /// Waits for the step of a slice given by add(). Throws what a step has thrown.
  Outcome outcome(size_t slice);
  /// Waits for all slices. Throws what a step has thrown.
  void wait() { worker_.wait(); }
  /// Waits for all slices, whatever they throw, and ends the window.
  void end() noexcept;

 private:
  std::optional<SliceArrivals> arrivals_;
  std::vector<optim::Hyperparameters> options_;  // [group]
  std::vector<size_t> order_;                    // slices
  std::vector<std::optional<size_t>> places_;    // [slice], index in order_
  std::vector<Outcome> outcomes_;                // [slice]
  int64_t num_before_ = 0;                       // pieces of work of former windows
  device::OrderedWorker worker_;  // declared last, so that it stops before the data it uses is destroyed
};

}  // namespace deepspeed::zero
