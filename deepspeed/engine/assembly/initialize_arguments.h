// The arguments of initialize() that say which config, which job and which optimizer is meant.
#pragma once

#include <memory>

#include "deepspeed/comm/init.h"
#include "deepspeed/config/table/source.h"
#include "deepspeed/engine/assembly/build.h"

namespace deepspeed {

/// The one config among config, config_params and args. Throws UsageError where there is none, or two.
config::ConfigSource find_config(const InitializeOptions& options);
/// Joins the job as dist_init_required asks. Throws UsageError where args.local_rank is not this process's,
/// or mesh_param does not fit the ranks, and NotSupportedError for what needs another than data parallelism.
comm::World find_world(const InitializeOptions& options);
/// Which ranks share out the model and the data, as options.mpu says. Throws UsageError where its groups do
/// not fill the world.
RankLayout find_layout(const InitializeOptions& options, const comm::World& world);
/// The program's own optimizer; null where the config's is meant. Throws UsageError for an object with
/// model_parameters beside it, and for a callable whose model_parameters have options.
std::shared_ptr<torch::optim::Optimizer> find_optimizer(const EngineModel& model,
                                                        const InitializeOptions& options);

}  // namespace deepspeed
