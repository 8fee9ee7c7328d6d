// super_offload: a step that backward begins. A worker steps slices in host memory as soon as their gradients
// are final; the model's weights become the new ones at step().
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
  /// `store`, `optimizer` and `slices` must outlive it.
  EarlyStep(ParamStore& store, optim::Optimizer& optimizer, SliceSet& slices, const StepOptions& options);

  /// For GradReducer::on_final(): gives the slices that are complete with the part to the worker.
  void add_gradients(GradReducer& reducer, const OwnedPart& part, double gradient_scale);
  /// Whether a step was begun, which publish() completes: until then masters and states are neither old nor
  /// new.
  bool has_begun() const { return ahead_.has_begun(); }
  /// Throws UsageError where hyperparameters or weights were changed since it was begun.
  void check_unchanged();
  /// The slices that are left for the step itself.
  std::vector<size_t> not_begun() const;
  /// sum += the squares of the group's gradients: one double on their device. The worker has summed those of
  /// the slices that were begun.
  void add_squares(const GradReducer& reducer, size_t group, const at::Tensor& sum);
  /// The model's weights become what the slices were stepped to, one after the other as they are. Throws what
  /// a step has thrown.
  void publish(const GradReducer& reducer, SliceStepper& stepper);
  /// Restores masters and states to what they were before, and closes the step.
  void take_back(const GradReducer& reducer, double gradient_scale);
  /// Closes the step. Slices that were stepped keep their new values. Call it after step(), or instead of it.
  void close() { ahead_.end(); }
  /// Waits until all that was begun is stepped. Throws what a step has thrown.
  void wait_for_worker();
  /// Of the memory in which new weights wait for step().
  int64_t waiting_bytes() const;

 private:
  StepAhead::Outcome step_in_worker(size_t index, const at::Tensor& gradient, double gradient_scale);
  /// The slice as the worker steps it: its master where it is kept, the group's hyperparameters of then.
  optim::FlatSlice as_begun(const Slice& slice, const at::Tensor& gradient) const;
  /// In host memory; of the model's device a copy.
  at::Tensor in_host(const at::Tensor& tensor) const;

  ParamStore& store_;
  optim::Optimizer& optimizer_;
  SliceSet& slices_;
  const StepOptions options_;
  std::vector<at::Tensor> waiting_;  // [slice]: new 16-bit weights until step(), where the plan says so
  device::SideStream worker_stream_;
  StepAhead ahead_;  // declared last, so that its worker stops before what it uses is destroyed
};

}  // namespace deepspeed::zero
