// Where the masters and states of a slice are, and by which route its step reads and writes the model's
// weights: a pure rule, which the step, the memory estimate and the memory check read.
#pragma once

#include <cstdint>
#include <optional>

#include <c10/core/ScalarType.h>

#include "deepspeed/zero/shards/param_home.h"
#include "deepspeed/zero/update/step_options.h"

namespace deepspeed::zero {

/// What decides about a slice beside the StepOptions.
struct SliceSituation {
  at::ScalarType dtype = at::kFloat;    // of its weights
  ParamHome home = ParamHome::kDevice;  // of its weights
  bool model_on_cpu = true;             // the model's device has the host's memory
  bool is_offloaded = false;            // it is one of those that StepOptions::offload takes
  bool partitions_gradients = false;    // stages 2 and 3
  std::optional<at::ScalarType> accumulation_dtype = {};  // of its gradients; absent: its weights'
};

/// What holds the values that the optimizer updates.
enum class Masters {
  kWeights,      // the weights alone; of 16 bits they are updated as they are
  kLowerHalves,  // the 16 lower bits of fp32 values, kept beside the weights, which are the upper ones
  kBeside,       // values in fp32 (in fp64 for weights in it), kept beside the weights
};

/// How a step reads and writes the weights.
enum class WeightRoute {
  kInPlace,  // they lie where the slice is stepped
  kSent,     // they are on the device and the step in host memory, from where new ones are sent
  kFetched,  // as kSent, but the step reads them: they come with the gradients, and go back
  kWritten,  // they lie elsewhere; where the step reads them, it makes a copy first
};

struct SlicePlan {
  ParamHome home = ParamHome::kDevice;  // of masters and states, between steps
  bool crosses_memory = false;  // it is stepped in host memory, which the memory of the model's device is not
  bool steps_early = false;     // super_offload: backward begins its step
  bool has_waiting_memory = false;  // its new weights wait in memory of their own until step()
  Masters masters = Masters::kWeights;
  WeightRoute route = WeightRoute::kInPlace;
  std::optional<at::ScalarType> kept_dtype;  // of what is kept beside the weights; absent: nothing is

  bool is_on_disk() const { return home == ParamHome::kDisk; }
  bool keeps_masters() const { return masters != Masters::kWeights; }
  /// Whether the step uses the values of the weights: they are the masters, or a half of them.
  bool reads_weights() const { return masters != Masters::kBeside; }
  bool is_at_weights() const { return route == WeightRoute::kInPlace; }
  /// Whether the step sends new weights to the device.
  bool sends_weights() const { return route == WeightRoute::kSent || route == WeightRoute::kFetched; }
  /// Bytes of an element that are kept beside its weight.
  int64_t kept_bytes() const;
};

SlicePlan plan_slice(const SliceSituation& slice, const StepOptions& options);

}  // namespace deepspeed::zero
