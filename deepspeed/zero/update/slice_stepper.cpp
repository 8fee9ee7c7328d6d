// The order of a step: slices on the device come first, then those on the host, last ones first. Gradients of
// a host slice arrive while the slice before is stepped. Its new weights leave while the next one is stepped.
#include "deepspeed/zero/update/slice_stepper.h"

#include <algorithm>
#include <utility>

namespace deepspeed::zero {

SliceStepper::SliceStepper(ParamStore& store, optim::Optimizer& optimizer, SliceSet& slices,
                           const OptimizerOffload& offload)
    : store_(store),
      optimizer_(optimizer),
      slices_(slices),
      transfers_(store.options().device(), offload.pin_memory, offload.is_on() && offload.always_copies) {}

void SliceStepper::step(const std::vector<size_t>& indices, const GradReducer& reducer,
                        const GradientScale& gradient_scale) {
  // Slices on the device are stepped first. The device works on them while the host steps the others.
  std::vector<size_t> here, apart;
  for (const size_t index : indices) (slices_[index].plan.crosses_memory ? apart : here).push_back(index);
  std::reverse(apart.begin(), apart.end());  // the last gradients arrive first
  const auto step = [&](Slice& slice) { step_slice(slice, reducer, gradient_scale); };
  slices_.for_each(here, SliceSet::Access::kChange, step);
  if (!apart.empty()) {
    expect_transfers(reducer, apart);
    slices_.for_each(apart, SliceSet::Access::kChange, step);
    transfers_.finish();
  }
  store_.finish_writes();
}

void SliceStepper::expect_transfers(const GradReducer& reducer, const std::vector<size_t>& order) {
  std::vector<at::Tensor> sources;
  for (const size_t index : order) {
    const Slice& slice = slices_[index];
    if (!reducer.keeps_on_host()) sources.push_back(reducer.gradient(slice.flat.group, slice.interval));
    if (slice.plan.route == WeightRoute::kFetched) sources.push_back(slices_.weights_of(slice).memory());
  }
  transfers_.expect(std::move(sources), slices_[order.front()].plan.route == WeightRoute::kFetched);
}

at::Tensor SliceStepper::gradient_of(const Slice& slice, const GradReducer& reducer) {
  if (slice.plan.crosses_memory && !reducer.keeps_on_host()) return transfers_.next();
  return reducer.gradient(slice.flat.group, slice.interval);
}

/// Returns memory for new weights, in the model's dtype, on the device that steps. It holds the old weights
/// if the step reads them.
at::Tensor SliceStepper::memory_for_weights(const Slice& slice, const SliceWeights& weights) {
  const int64_t numel = slice.interval.numel();
  switch (slice.plan.route) {
    case WeightRoute::kInPlace:
      weights.wait_for_reads();
      return weights.memory();
    case WeightRoute::kFetched:
      return transfers_.next();
    case WeightRoute::kSent:
      return transfers_.outgoing(numel, slices_.dtype_of(slice));
    case WeightRoute::kWritten:
      break;
  }
  return slice.plan.reads_weights() ? slices_.copy_of_weights(slice) : slices_.empty_weights(slice, numel);
}

void SliceStepper::pass_on_weights(const Slice& slice, const SliceWeights& weights,
                                   const at::Tensor& updated) {
  const bool is_rounded = store_.dtype() != at::kFloat;
  switch (slice.plan.route) {
    case WeightRoute::kInPlace:
      return;
    case WeightRoute::kFetched:
      return transfers_.send_back(weights.memory());
    case WeightRoute::kSent:
      if (!is_rounded) updated.copy_(slice.flat.master);
      return transfers_.send(weights.memory(), updated);
    case WeightRoute::kWritten:
      return weights.write(is_rounded ? updated : slice.flat.master);
  }
}

void SliceStepper::step_slice(Slice& slice, const GradReducer& reducer, const GradientScale& gradient_scale) {
  slices_.follow_weights(slice, SliceSet::Access::kChange);
  optim::FlatSlice& flat = slice.flat;
  const SliceWeights weights = slices_.weights_of(slice);
  const bool is_kept = slice.plan.keeps_masters();
  const bool is_rounded = store_.dtype() != at::kFloat;
  flat.gradient = gradient_of(slice, reducer);
  flat.ranks = ranks_;
  at::Tensor updated;
  if (is_rounded || slice.plan.sends_weights() || !is_kept) updated = memory_for_weights(slice, weights);
  const bool is_direct = !is_kept && is_rounded && optimizer_.steps_sixteen_bit_masters();
  // For an fp32 model this makes no copy.
  if (!is_kept) flat.master = is_direct ? updated : updated.to(store_.master_dtype(flat.group));
  if (is_rounded && !is_direct) flat.low_precision = updated;
  flat.scale_on_device = gradient_scale.on_device;
  optimizer_.step(flat, gradient_scale.value);
  pass_on_weights(slice, weights, updated);
  flat.gradient.reset();
  flat.low_precision.reset();
  flat.scale_on_device.reset();
  if (!is_kept) flat.master.reset();
}

void SliceStepper::publish(const Slice& slice, at::Tensor updated) {
  const SliceWeights weights = slices_.weights_of(slice);
  if (!slice.plan.sends_weights()) return weights.write(updated);
  if (store_.dtype() == at::kFloat) {
    const at::Tensor outgoing = transfers_.outgoing(updated.numel(), at::kFloat);
    outgoing.copy_(updated);
    updated = outgoing;
  }
  transfers_.send(weights.memory(), updated);
}

}  // namespace deepspeed::zero
