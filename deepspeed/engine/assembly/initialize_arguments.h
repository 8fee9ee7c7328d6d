// Finds the config, the job and the optimizer that the arguments of initialize() name.
#pragma once

#include <memory>

#include "deepspeed/comm/init.h"
#include "deepspeed/config/table/source.h"
#include "deepspeed/engine/assembly/initialize_options.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/engine/ranks/parallel_groups.h"

namespace deepspeed {

/// Returns the config that config, config_params or args gives. Throws UsageError if there is none or more
/// than one.
config::ConfigSource find_config(const InitializeOptions& options);
/// Joins the job as dist_init_required asks. Throws UsageError if args.local_rank differs from LOCAL_RANK or
/// mesh_param does not fit the ranks. Throws NotSupportedError for a mesh with sequence parallelism.
comm::World find_world(const InitializeOptions& options);
/// Returns which ranks divide the model and the data, according to options.mpu. Throws UsageError if its
/// groups do not fit the world.
RankLayout find_layout(const InitializeOptions& options, const comm::World& world);
/// Returns the program's own optimizer, or null if the config's is used. Throws UsageError for an object
/// given together with model_parameters, and for a callable whose model_parameters have options.
std::shared_ptr<torch::optim::Optimizer> find_optimizer(const EngineModel& model,
                                                        const InitializeOptions& options);

}  // namespace deepspeed
