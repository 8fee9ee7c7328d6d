// How checkpoint() keeps the inputs of regions, for the whole process: `deepspeed.checkpointing.configure`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "deepspeed/activation/options.h"
#include "deepspeed/base/export.h"
#include "deepspeed/config/table/source.h"

namespace deepspeed {
class Mpu;
}

namespace deepspeed::checkpointing {

struct Keeping;

/// The arguments of configure() beside the mpu, under DeepSpeed's names. What is not given comes from the
/// config's section activation_checkpointing, else it is off.
struct ConfigureOptions {
  std::optional<config::ConfigSource> deepspeed_config = {};
  std::optional<bool> partition_activations = {};
  std::optional<bool> contiguous_checkpointing = {};
  std::optional<int64_t> num_checkpoints = {};
  std::optional<bool> checkpoint_in_cpu = {};
  std::optional<bool> synchronize = {};
  std::optional<bool> profile = {};
};

/// Sets how checkpoint() keeps activations from here on. `mpu`: whose model-parallel ranks share them with
/// partition_activations; null: there are none. Throws UsageError for contiguous_checkpointing without
/// partition_activations or without num_checkpoints.
DEEPSPEED_API void configure(const std::shared_ptr<Mpu>& mpu, const ConfigureOptions& options = {});
DEEPSPEED_API bool is_configured();
/// Forgets buffers of contiguous_checkpointing that a forward without a backward has filled.
DEEPSPEED_API void reset();
/// Sets num_checkpoints.
DEEPSPEED_API void set_num_layers(int64_t num_layers);
/// Sets partition_activations.
DEEPSPEED_API void partition_activations_in_checkpoint(bool partition_activations);
/// Returns what is set.
DEEPSPEED_API CheckpointOptions current_options();

/// How regions keep their inputs now.
DEEPSPEED_API std::shared_ptr<const Keeping> current_keeping();

}  // namespace deepspeed::checkpointing
