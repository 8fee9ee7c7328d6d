// The order of events: the first final part of the gradients begins the step. The worker steps each complete
// slice. step() checks that nothing was changed meanwhile, and publishes what was stepped, or takes it back.
#include "deepspeed/zero/update/early_step.h"

#include <cmath>
#include <utility>

#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/host_memory.h"
#include "deepspeed/kernels/grad_stats.h"
#include "deepspeed/zero/update/grad_norm.h"

namespace deepspeed::zero {

EarlyStep::EarlyStep(ParamStore& store, optim::Optimizer& optimizer, SliceSet& slices,
                     const StepOptions& options)
    : store_(store),
      optimizer_(optimizer),
      slices_(slices),
      options_(options),
      waiting_(slices.size()),
      worker_stream_(store.options().device()),
      ahead_(options.offload.worker_cores, store.options().device()) {
  for (size_t index = 0; index < slices_.size(); ++index) {
    const Slice& slice = slices_[index];
    if (slice.plan.has_waiting_memory)
      waiting_[index] =
          device::empty_host(slice.interval.numel(), store_.dtype(), options_.offload.pin_memory);
  }
}

int64_t EarlyStep::waiting_bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& waiting : waiting_) {
    if (waiting.defined()) bytes += static_cast<int64_t>(waiting.nbytes());
  }
  return bytes;
}

void EarlyStep::add_gradients(GradReducer& reducer, const OwnedPart& part, double gradient_scale) {
  if (!ahead_.has_begun()) {
    slices_.note_written_weights();
    std::vector<OwnedPart> places;
    for (size_t index = 0; index < slices_.size(); ++index)
      places.push_back({slices_[index].flat.group, slices_[index].interval});
    ahead_.begin(std::move(places), reducer.final_parts(), optimizer_.param_groups());
  }
  for (const size_t index : ahead_.note(part)) {
    const Slice& slice = slices_[index];
    if (!slice.plan.steps_early) continue;
    slices_.follow_weights(index);
    const auto wait = reducer.hand_over(slice.flat.group, slice.interval);
    const at::Tensor gradient = reducer.gradient(slice.flat.group, slice.interval);
    ahead_.add(index, [this, index, wait, gradient, gradient_scale] {
      wait();
      return step_in_worker(index, gradient, gradient_scale);
    });
  }
}

at::Tensor EarlyStep::in_host(const at::Tensor& tensor) const {
  if (tensor.is_cpu()) return tensor;
  const at::Tensor copy =
      device::empty_host_from_pool(tensor.numel(), tensor.scalar_type(), options_.offload.pin_memory);
  // The caller that added the slice has waited for all earlier work of the device.
  worker_stream_.copy_at_once(copy, tensor).wait();
  return copy;
}

optim::FlatSlice EarlyStep::as_begun(const Slice& slice, const at::Tensor& gradient) const {
  optim::FlatSlice flat = slice.flat;
  flat.options = &ahead_.options(flat.group);
  flat.gradient = gradient;
  return flat;
}

StepAhead::Outcome EarlyStep::step_in_worker(size_t index, const at::Tensor& source, double gradient_scale) {
  const c10::NoGradGuard no_grad;
  const Slice& slice = slices_[index];
  optim::FlatSlice flat = as_begun(slice, in_host(source));
  StepAhead::Outcome outcome{kernels::sum_of_squares(flat.gradient).item<double>(), false};
  if (options_.check_overflow && !std::isfinite(outcome.sum_of_squares)) return outcome;
  if (store_.dtype() == at::kFloat) {
    optimizer_.step(flat, gradient_scale);
    return {outcome.sum_of_squares, true};
  }
  const at::Tensor waiting = waiting_[index].defined() ? waiting_[index] : flat.gradient;
  at::Tensor updated = waiting;
  if (slice.plan.reads_weights()) {
    const at::Tensor weights = slices_.weights_of(slice).memory();
    if (waiting_[index].defined()) {
      updated.copy_(in_host(weights));
    } else {
      updated = weights.is_cpu() ? weights.clone() : in_host(weights);
    }
  }
  (slice.plan.keeps_masters() ? flat.low_precision : flat.master) = updated;
  optimizer_.step(flat, gradient_scale);
  if (!updated.is_same(waiting)) waiting.copy_(updated);
  return {outcome.sum_of_squares, true};
}

void EarlyStep::publish(const GradReducer& reducer, SliceStepper& stepper) {
  for (const size_t index : ahead_.order()) {
    if (!ahead_.outcome(index).is_stepped) continue;
    const Slice& slice = slices_[index];
    stepper.publish(slice, store_.dtype() == at::kFloat ? slice.flat.master
                           : waiting_[index].defined()  ? waiting_[index]
                                                        : reducer.gradient(slice.flat.group, slice.interval));
  }
  // The remaining slices are stepped here. Making their states may use memory that the worker uses.
  ahead_.wait();
  stepper.finish_publishing();
}

std::vector<size_t> EarlyStep::not_begun() const {
  std::vector<size_t> indices = slices_.all();
  std::erase_if(indices, [&](size_t index) { return ahead_.was_given(index); });
  return indices;
}

void EarlyStep::check_unchanged() {
  constexpr const char* kWayOut =
      " was changed after the backward() that has begun the step; change it before that backward(), or set "
      "zero_optimization.offload_optimizer.super_offload to false";
  if (const auto group = ahead_.changed_group(optimizer_.param_groups())) {
    raise<UsageError>("a hyperparameter of parameter group ", *group, kWayOut);
  }
  for (size_t group = 0; group < store_.groups().size(); ++group) {
    const auto changed = store_.take_externally_written(group);
    if (changed.empty()) continue;
    raise<UsageError>("parameter '", store_.groups()[group].params[changed.front()].name, "'", kWayOut);
  }
}

void EarlyStep::add_squares(const GradReducer& reducer, size_t group, const at::Tensor& sum) {
  for (size_t index = 0; index < slices_.size(); ++index) {
    const Slice& slice = slices_[index];
    if (slice.flat.group != group) continue;
    if (ahead_.was_given(index)) {
      sum.add_(ahead_.outcome(index).sum_of_squares);
    } else {
      add_squares_of(reducer.gradient(group, slice.interval), sum);
    }
  }
}

void EarlyStep::take_back(const GradReducer& reducer, double gradient_scale) {
  ahead_.wait();
  for (const size_t index : ahead_.order()) {
    const Slice& slice = slices_[index];
    if (!ahead_.outcome(index).is_stepped) continue;
    optim::FlatSlice flat = as_begun(slice, reducer.gradient(slice.flat.group, slice.interval).to(at::kCPU));
    if (options_.split_masters) flat.low_precision = waiting_[index];
    optimizer_.take_back(flat, gradient_scale);
  }
  ahead_.end();
}

void EarlyStep::wait_for_worker() {
  if (has_begun()) ahead_.wait();
}

}  // namespace deepspeed::zero
