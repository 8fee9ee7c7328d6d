// Reads the config's section zero_optimization.offload_optimizer for the optimizer.
#pragma once

#include <optional>

#include <c10/core/ScalarType.h>

#include "deepspeed/comm/init.h"
#include "deepspeed/config/config.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/zero/offload/optimizer_offload.h"

namespace deepspeed {

/// Returns the offload options of the optimizer. On a disk they use DeepSpeed's folder:
/// <nvme_path>/zero_stage_<stage>/optimizer/rank<rank>. autocast: dtype of torch_autocast, if enabled.
zero::OptimizerOffload optimizer_offload(const config::DeepSpeedConfig& config, int rank,
                                         std::optional<at::ScalarType> autocast);

/// Sets in `offload` the processors that cpuadam_cores_perc gives to super_offload's step. Warns if other
/// keys force the step to follow backward.
void use_cores_for_step(const config::DeepSpeedConfig& config, const comm::World& world,
                        std::optional<at::ScalarType> autocast, zero::OptimizerOffload& offload);

/// Throws ConfigError, naming the keys, if the optimizer cannot or may not run offloaded. Does nothing if the
/// section is off. is_client: the optimizer was passed to initialize().
void check_offloaded_optimizer(const config::DeepSpeedConfig& config, const optim::Optimizer& optimizer,
                               bool is_client);

}  // namespace deepspeed
