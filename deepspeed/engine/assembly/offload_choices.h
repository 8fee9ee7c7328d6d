// The config's section zero_optimization.offload_optimizer, as the optimizer is built with it.
#pragma once

#include <optional>

#include <c10/core/ScalarType.h>

#include "deepspeed/comm/init.h"
#include "deepspeed/config/config.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/zero/offload/optimizer_offload.h"

namespace deepspeed {

/// With DeepSpeed's folder on the disk: <nvme_path>/zero_stage_<stage>/optimizer/rank<rank>. autocast: its
/// dtype, where it is on.
zero::OptimizerOffload optimizer_offload(const config::DeepSpeedConfig& config, int rank,
                                         std::optional<at::ScalarType> autocast);

/// Gives super_offload the processors that cpuadam_cores_perc says; warns where the config leaves nothing for
/// it to do.
void use_cores_for_step(const config::DeepSpeedConfig& config, const comm::World& world,
                        std::optional<at::ScalarType> autocast, zero::OptimizerOffload& offload);

/// Throws ConfigError, naming the keys, where the section is on and the optimizer cannot be stepped outside
/// of the device, or may not. is_client: it was passed to initialize().
void check_offloaded_optimizer(const config::DeepSpeedConfig& config, const optim::Optimizer& optimizer,
                               bool is_client);

}  // namespace deepspeed
