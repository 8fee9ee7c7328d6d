// Decides how a slice is stepped: the place of its masters and states, and how its step reads and writes the
// model's weights. This pure rule serves the step, the memory estimate and the memory check.
#pragma once

#include <cstdint>
#include <optional>

#include <c10/core/ScalarType.h>

#include "deepspeed/zero/shards/param_home.h"
#include "deepspeed/zero/update/step_options.h"

namespace deepspeed::zero {

/// Describes a slice as plan_slice() needs it, in addition to the StepOptions.
struct SliceSituation {
  at::ScalarType dtype = at::kFloat;                      // of its weights
  ParamHome home = ParamHome::kDevice;                    // of its weights
  bool model_on_cpu = true;                               // the model's device uses host memory
  bool is_offloaded = false;                              // StepOptions::offload includes this slice
  bool partitions_gradients = false;                      // stages 2 and 3
  std::optional<at::ScalarType> accumulation_dtype = {};  // of its gradients; absent: its weights'
};

/// Says what holds the values that the optimizer updates.
enum class Masters {
  kWeights,      // only the weights; 16-bit weights are updated as they are
  kLowerHalves,  // the 16 lower bits of fp32 values; the weights are the upper bits
  kBeside,       // separate values in fp32 (in fp64 for fp64 weights)
};

/// Says how a step reads and writes the weights.
enum class WeightRoute {
  kInPlace,  // they are in the memory in which the slice is stepped
  kSent,     // they are on the device; the step runs in host memory and sends new ones
  kFetched,  // like kSent, but the step reads them: they come with the gradients, and go back
  kWritten,  // they are elsewhere; if the step reads them, it copies them first
};

struct SlicePlan {
  ParamHome home = ParamHome::kDevice;  // of masters and states, between steps
  bool crosses_memory = false;          // it is stepped in host memory, but the model is not there
  bool steps_early = false;             // super_offload: backward begins its step
  bool has_waiting_memory = false;      // its new weights wait in separate memory until step()
  Masters masters = Masters::kWeights;
  WeightRoute route = WeightRoute::kInPlace;
  std::optional<at::ScalarType> kept_dtype;  // of values kept in addition to the weights; absent: none

  bool is_on_disk() const { return home == ParamHome::kDisk; }
  bool keeps_masters() const { return masters != Masters::kWeights; }
  /// Returns whether the step reads the weights, as masters or as the upper bits of split ones.
  bool reads_weights() const { return masters != Masters::kBeside; }
  bool is_at_weights() const { return route == WeightRoute::kInPlace; }
  /// Returns whether the step sends new weights to the device.
  bool sends_weights() const { return route == WeightRoute::kSent || route == WeightRoute::kFetched; }
  /// Returns the bytes kept per element in addition to its weight.
  int64_t kept_bytes() const;
};

SlicePlan plan_slice(const SliceSituation& slice, const StepOptions& options);

}  // namespace deepspeed::zero
