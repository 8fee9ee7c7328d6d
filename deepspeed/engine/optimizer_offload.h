// The config's section zero_optimization.offload_optimizer, as the optimizer is built with it.
#pragma once

#include "deepspeed/config/config.h"
#include "deepspeed/optim/optimizer.h"
#include "deepspeed/zero/optimizer_offload.h"

namespace deepspeed {

/// With DeepSpeed's folder on the disk: <nvme_path>/zero_stage_<stage>/optimizer/rank<rank>.
zero::OptimizerOffload optimizer_offload(const config::DeepSpeedConfig& config, int rank);

/// Throws ConfigError, naming the keys, where the section is on and the optimizer cannot be stepped outside
/// of the device, or may not. is_client: it was passed to initialize().
void check_offloaded_optimizer(const config::DeepSpeedConfig& config, const optim::Optimizer& optimizer,
                               bool is_client);

}  // namespace deepspeed
