// super_offload: a step that backward begins. A worker steps slices in host memory once their gradients are
// final. The model's weights change at step().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/device/streams/side_stream.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/offload/step_ahead.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/update/slice_set.h"
#include "deepspeed/zero/update/slice_stepper.h"
#include "deepspeed/zero/update/step_options.h"

namespace deepspeed::zero {

class EarlyStep {
 public:
  /// `store`, `optimizer` and `slices` must outlive this object.
  EarlyStep(ParamStore& store, optim::Optimizer& optimizer, SliceSet& slices, const StepOptions& options);

  /// Gives the worker the slices whose gradients `part` completes; the first call begins the step. The
  /// listener of GradReducer::on_final() calls this. Steps multiply gradients by gradient_scale.
  void add_gradients(GradReducer& reducer, const OwnedPart& part, double gradient_scale);
  /// Returns whether a step has begun. Until publish() completes it, masters and states are partly old,
  /// partly new.
  bool has_begun() const { return ahead_.has_begun(); }
  /// Throws UsageError if hyperparameters or weights were changed since the step began.
  void check_unchanged();
  /// Returns the indices of slices that were not given to the worker, for step() itself.
  std::vector<size_t> not_begun() const;
  /// Adds the squares of the group's gradients to `sum`: one double on the model's device. For slices given
  /// to the worker, the worker's sums of squares are used.
  void add_squares(const GradReducer& reducer, size_t group, const at::Tensor& sum);
  /// Writes the stepped slices' new values to the model's weights, as each is done. Throws what a slice's
  /// step has thrown.
  void publish(const GradReducer& reducer, SliceStepper& stepper);
  /// Restores the previous masters and states, and closes the step.
  void take_back(const GradReducer& reducer, double gradient_scale);
  /// Closes the step. Stepped slices keep their new values. Call it after step() or instead of it.
  void close() { ahead_.end(); }
  /// Waits until all begun slices are stepped. Throws what a slice's step has thrown.
  void wait_for_worker();
  /// Returns the bytes of memory in which new weights wait for step().
  int64_t waiting_bytes() const;

 private:
  StepAhead::Outcome step_in_worker(size_t index, const at::Tensor& gradient, double gradient_scale);
  /// Returns the slice as the worker steps it. It has its master, if kept, and the hyperparameters of the
  /// step's begin.
  optim::FlatSlice as_begun(const Slice& slice, const at::Tensor& gradient) const;
  /// Returns the tensor in host memory; for one on the model's device, a copy.
  at::Tensor in_host(const at::Tensor& tensor) const;

  ParamStore& store_;
  optim::Optimizer& optimizer_;
  SliceSet& slices_;
  const StepOptions options_;
  std::vector<at::Tensor> waiting_;  // [slice]: new 16-bit weights until step(), if the plan asks for them
  device::SideStream worker_stream_;
  StepAhead ahead_;  // declared last, so that its worker stops before the data it uses is destroyed
};

}  // namespace deepspeed::zero
