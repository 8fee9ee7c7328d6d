#include "deepspeed/zero/update/slice_plan.h"

namespace deepspeed::zero {
namespace {

bool has_sixteen_bits(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

bool lies_where_it_is_stepped(const SliceSituation& slice, const SlicePlan& plan) {
  // Backward still uses the weights while an early step runs. New 16-bit weights wait elsewhere.
  if (plan.steps_early && !has_sixteen_bits(slice.dtype)) return false;
  switch (slice.home) {
    case ParamHome::kDevice:
      return !plan.crosses_memory;
    case ParamHome::kHost:
      return plan.crosses_memory || slice.model_on_cpu;
    case ParamHome::kDisk:
      break;
  }
  return false;
}

Masters masters_of(const SliceSituation& slice, const StepOptions& options, bool is_at_weights) {
  if (!has_sixteen_bits(slice.dtype)) return is_at_weights ? Masters::kWeights : Masters::kBeside;
  if (options.sixteen_bit_masters) return Masters::kWeights;
  return options.split_masters ? Masters::kLowerHalves : Masters::kBeside;
}

std::optional<at::ScalarType> kept_dtype_of(Masters masters, at::ScalarType weights) {
  switch (masters) {
    case Masters::kWeights:
      break;
    case Masters::kLowerHalves:
      return at::kShort;
    case Masters::kBeside:
      return weights == at::kDouble ? at::kDouble : at::kFloat;
  }
  return std::nullopt;
}

/// Returns whether new weights can wait in the gradients' memory. Taking a step back needs the gradients.
bool writes_over_gradients(const SliceSituation& slice, const StepOptions& options) {
  return options.offload.keeps_gradients(slice.partitions_gradients) && !options.check_overflow &&
         slice.accumulation_dtype.value_or(slice.dtype) == slice.dtype;
}

}  // namespace

int64_t SlicePlan::kept_bytes() const {
  return kept_dtype ? static_cast<int64_t>(c10::elementSize(*kept_dtype)) : 0;
}

SlicePlan plan_slice(const SliceSituation& slice, const StepOptions& options) {
  const OptimizerOffload& offload = options.offload;
  SlicePlan plan;
  if (slice.is_offloaded)
    plan.home = offload.device == OffloadDevice::kNvme ? ParamHome::kDisk : ParamHome::kHost;
  plan.crosses_memory = slice.is_offloaded && (offload.always_copies || !slice.model_on_cpu);
  plan.steps_early = slice.is_offloaded && offload.super_offload;
  plan.has_waiting_memory =
      plan.steps_early && has_sixteen_bits(slice.dtype) && !writes_over_gradients(slice, options);
  const bool is_at_weights = lies_where_it_is_stepped(slice, plan);
  plan.masters = masters_of(slice, options, is_at_weights);
  plan.kept_dtype = kept_dtype_of(plan.masters, slice.dtype);
  if (is_at_weights) {
    plan.route = WeightRoute::kInPlace;
  } else if (plan.crosses_memory && slice.home == ParamHome::kDevice) {
    plan.route = plan.reads_weights() ? WeightRoute::kFetched : WeightRoute::kSent;
  } else {
    plan.route = WeightRoute::kWritten;
  }
  return plan;
}

}  // namespace deepspeed::zero
