// Activation checkpointing, as in `deepspeed.checkpointing`. Programs that use it include this header in
// addition to deepspeed.h. See docs/activation_checkpointing.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "deepspeed/activation/checkpointing.h"
#include "deepspeed/activation/keep/activation_meter.h"
#include "deepspeed/activation/saved_tensor_offload.h"
#include "deepspeed/base/export.h"
#include "deepspeed/config/table/source.h"
#include "deepspeed/random/cuda_rng_tracker.h"

namespace deepspeed {
class Mpu;
}

namespace deepspeed::checkpointing {

using deepspeed::CudaRNGStatesTracker;
using deepspeed::get_cuda_rng_tracker;
using deepspeed::model_parallel_cuda_manual_seed;
using deepspeed::model_parallel_reconfigure_tp_seed;

/// Holds the arguments of DeepSpeed's configure() apart from the mpu. Options that are not set come from the
/// config's section activation_checkpointing; without one they are off.
struct ConfigureOptions {
  std::optional<config::ConfigSource> deepspeed_config = {};
  std::optional<bool> partition_activations = {};
  std::optional<bool> contiguous_checkpointing = {};
  std::optional<int64_t> num_checkpoints = {};
  std::optional<bool> checkpoint_in_cpu = {};
  std::optional<bool> synchronize = {};
  std::optional<bool> profile = {};
};

/// Sets how later calls of checkpoint() keep the inputs of regions. With partition_activations, each
/// model-parallel rank of `mpu` keeps a part of them. A null `mpu` means there are no such ranks. Throws
/// UsageError for options that contradict each other and ConfigError for a wrong config.
DEEPSPEED_API void configure(const std::shared_ptr<Mpu>& mpu, const ConfigureOptions& options = {});

}  // namespace deepspeed::checkpointing
