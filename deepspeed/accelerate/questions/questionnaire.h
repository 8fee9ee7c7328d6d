// The questions of `accelerate config`, in its order, for what this library runs.
#pragma once

#include <string>

#include "deepspeed/accelerate/config/cluster_config.h"
#include "deepspeed/accelerate/questions/asker.h"
#include "deepspeed/base/export.h"

namespace deepspeed::accelerate {

/// Asks about machines, DeepSpeed, processes and precision, and returns the config. Questions that earlier
/// answers make needless are skipped, as Accelerate skips them.
ClusterConfig ask_for_config(Asker& asker);

/// Returns the config of `config default`: this machine's GPUs without DeepSpeed, or its CPU.
DEEPSPEED_API ClusterConfig config_of_this_machine(const std::string& mixed_precision, int num_gpus);

}  // namespace deepspeed::accelerate
