// super_offload: the slices of a step that is begun while backward runs.
#include <cmath>

#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/host_memory.h"
#include "deepspeed/kernels/grad_stats.h"
#include "deepspeed/zero/update/step_slices.h"

namespace deepspeed::zero {
namespace {
constexpr const char* kAheadWhere = "zero.super_offload";
}

void StepSlices::make_memory_for_waiting() {
  for (Slice& slice : slices_) {
    if (slice.plan.has_waiting_memory)
      slice.waiting = device::empty_host(slice.interval.numel(), store_.dtype(), options_.offload.pin_memory);
  }
}

int64_t StepSlices::waiting_bytes() const {
  int64_t bytes = 0;
  for (const Slice& slice : slices_) {
    if (slice.waiting.defined()) bytes += static_cast<int64_t>(slice.waiting.nbytes());
  }
  return bytes;
}

void StepSlices::step_ahead(GradReducer& reducer, const OwnedPart& part, double gradient_scale) {
  if (!ahead_->has_begun()) {
    note_written_shards();
    std::vector<OwnedPart> places;
    for (const Slice& slice : slices_) places.push_back({slice.flat.group, slice.interval});
    ahead_->begin(std::move(places), reducer.final_parts(), optimizer_.param_groups());
  }
  for (const size_t index : ahead_->note(part)) {
    Slice& slice = slices_[index];
    if (!slice.plan.steps_early) continue;
    follow_weights(slice, Access::kChange);
    const auto wait = reducer.hand_over(slice.flat.group, slice.interval);
    const at::Tensor gradient = reducer.gradient(slice.flat.group, slice.interval);
    ahead_->add(index, [this, &slice, wait, gradient, gradient_scale] {
      wait();
      return step_in_worker(slice, gradient, gradient_scale);
    });
  }
}

at::Tensor StepSlices::in_host(const at::Tensor& tensor) const {
  if (tensor.is_cpu()) return tensor;
  const at::Tensor copy =
      device::empty_host_from_pool(tensor.numel(), tensor.scalar_type(), options_.offload.pin_memory);
  // Who gave the slice has waited for all that the device did before.
  worker_stream_.copy_at_once(copy, tensor).wait();
  return copy;
}

optim::FlatSlice StepSlices::as_begun(const Slice& slice, const at::Tensor& gradient) const {
  optim::FlatSlice flat = slice.flat;
  flat.options = &ahead_->options(flat.group);
  flat.gradient = gradient;
  return flat;
}

StepAhead::Outcome StepSlices::step_in_worker(const Slice& slice, const at::Tensor& source,
                                              double gradient_scale) {
  const c10::NoGradGuard no_grad;
  optim::FlatSlice flat = as_begun(slice, in_host(source));
  StepAhead::Outcome outcome{kernels::sum_of_squares(flat.gradient).item<double>(), false};
  if (options_.check_overflow && !std::isfinite(outcome.sum_of_squares)) return outcome;
  if (store_.dtype() == at::kFloat) {
    optimizer_.step(flat, gradient_scale);
    return {outcome.sum_of_squares, true};
  }
  const at::Tensor waiting = slice.waiting.defined() ? slice.waiting : flat.gradient;
  at::Tensor updated = waiting;
  if (slice.plan.reads_weights()) {
    const at::Tensor weights = weights_of(slice).memory();
    if (slice.waiting.defined()) {
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

void StepSlices::publish_begun(const GradReducer& reducer) {
  for (const size_t index : ahead_->order()) {
    if (!ahead_->outcome(index).is_stepped) continue;
    publish(slices_[index], reducer);
  }
  // Others are stepped here, whose states may be made in what the worker uses.
  ahead_->wait();
  transfers_.finish();
}

void StepSlices::publish(const Slice& slice, const GradReducer& reducer) {
  const SliceWeights weights = weights_of(slice);
  at::Tensor updated = store_.dtype() == at::kFloat ? slice.flat.master
                       : slice.waiting.defined()    ? slice.waiting
                                                    : reducer.gradient(slice.flat.group, slice.interval);
  if (!slice.plan.sends_weights()) return weights.write(updated);
  if (store_.dtype() == at::kFloat) {
    const at::Tensor outgoing = transfers_.outgoing(updated.numel(), at::kFloat);
    outgoing.copy_(updated);
    updated = outgoing;
  }
  transfers_.send(weights.memory(), updated);
}

void StepSlices::check_unchanged_since_begin() {
  constexpr const char* kWayOut =
      " was changed after the backward() that has begun the step; change it before that backward(), or set "
      "zero_optimization.offload_optimizer.super_offload to false";
  if (const auto group = ahead_->changed_group(optimizer_.param_groups())) {
    raise<UsageError>(kAheadWhere, "a hyperparameter of parameter group ", *group, kWayOut);
  }
  for (size_t group = 0; group < owned_.size(); ++group) {
    const auto changed = store_.take_set(group);
    if (changed.empty()) continue;
    raise<UsageError>(kAheadWhere, "parameter '", store_.groups()[group].params[changed.front()].name, "'",
                      kWayOut);
  }
}

void StepSlices::add_squares(const GradReducer& reducer, size_t group, const at::Tensor& sum) {
  const auto add = [&](const at::Tensor& part) {
    // A number that the host has goes with the launch; a copy of it would wait for the device.
    part.is_cpu() ? sum.add_(part.item()) : sum.add_(part);
  };
  if (!has_begun()) return add(kernels::sum_of_squares(reducer.gradient(group)));
  for (size_t index = 0; index < slices_.size(); ++index) {
    const Slice& slice = slices_[index];
    if (slice.flat.group != group) continue;
    if (ahead_->was_given(index)) {
      sum.add_(ahead_->outcome(index).sum_of_squares);
    } else {
      add(kernels::sum_of_squares(reducer.gradient(group, slice.interval)));
    }
  }
}

void StepSlices::take_back(const GradReducer& reducer, double gradient_scale) {
  ahead_->wait();
  for (const size_t index : ahead_->order()) {
    const Slice& slice = slices_[index];
    if (!ahead_->outcome(index).is_stepped) continue;
    optim::FlatSlice flat = as_begun(slice, reducer.gradient(slice.flat.group, slice.interval).to(at::kCPU));
    if (options_.split_masters) flat.low_precision = slice.waiting;
    optimizer_.take_back(flat, gradient_scale);
  }
  ahead_->end();
}

void StepSlices::end_begun() {
  if (ahead_) ahead_->end();
}

void StepSlices::settle() {
  if (has_begun()) ahead_->wait();
}

}  // namespace deepspeed::zero
