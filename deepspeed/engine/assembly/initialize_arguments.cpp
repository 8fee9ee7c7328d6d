#include "deepspeed/engine/assembly/initialize_arguments.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <c10/util/ArrayRef.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/mpu.h"

namespace deepspeed {
namespace {

// Applies the config's log level before the job is joined, so that messages of joining obey it. An invalid
// level is skipped here; the config's own reader reports it.
void follow_log_level(const InitializeOptions& options) {
  const Json given = find_config(options).read();
  const auto level = given.is_object() ? given.find("log_level") : given.end();
  if (level == given.end() || !level->is_string()) return;
  try {
    log::set_level(log::level_from_name(level->get<std::string>()));
  } catch (const UsageError&) {
  }
}

comm::World join_job(const InitializeOptions& options) {
  if (options.world) return options.world;
  if (!comm::is_initialized()) follow_log_level(options);
  if (options.dist_init_required == false && !comm::is_initialized()) {
    raise<UsageError>(
        "dist_init_required: got false, but init_distributed() did not run; call it first, or "
        "leave dist_init_required out");
  }
  if (options.dist_init_required == true && comm::is_initialized()) {
    log::info("[initialize] dist_init_required: the process has joined its job already");
  }
  return comm::init_distributed({.distributed_port = options.distributed_port});
}

void check_mesh(const std::vector<int64_t>& mesh, int world_size) {
  if (mesh.size() != 2 || mesh[0] < 1 || mesh[1] < 1 || mesh[0] * mesh[1] != world_size) {
    std::string given;
    for (const int64_t size : mesh) given += (given.empty() ? "" : ", ") + std::to_string(size);
    raise<UsageError>("mesh_param: got (", given,
                      "), expected (data parallel size, sequence parallel size) whose product is the ",
                      world_size, " ranks");
  }
  if (mesh[1] == 1) return;
  raise<NotSupportedError>("mesh_param: got a sequence parallel size of ", mesh[1],
                           ", but sequence parallelism does not exist yet; expected (", world_size, ", 1)");
}

}  // namespace

config::ConfigSource find_config(const InitializeOptions& options) {
  const std::string path = options.args ? options.args->config_path() : std::string();
  if (options.args && !options.args->deepspeed_config.empty() && !options.args->deepscale_config.empty()) {
    raise<UsageError>(
        "args: got both --deepspeed_config and --deepscale_config, its old name; pass the first");
  }
  const int given = (options.config ? 1 : 0) + (options.config_params ? 1 : 0) + (path.empty() ? 0 : 1);
  if (given > 1) {
    raise<UsageError>("got ", given,
                      " configs; expected one of config, config_params, and args with --deepspeed_config");
  }
  if (options.config) return *options.config;
  if (options.config_params) return *options.config_params;
  if (!path.empty()) return std::filesystem::path(path);
  raise<UsageError>(
      "got no config; pass config (a path, JSON text or a Json object), or args with "
      "--deepspeed_config");
}

comm::World find_world(const InitializeOptions& options) {
  comm::World world = join_job(options);
  if (options.args && options.args->local_rank >= 0 && options.args->local_rank != world.local_rank()) {
    raise<UsageError>("args: --local_rank is ", options.args->local_rank, ", but LOCAL_RANK says ",
                      world.local_rank());
  }
  if (options.mesh_param) check_mesh(*options.mesh_param, world.size());
  return world;
}

RankLayout find_layout(const InitializeOptions& options, const comm::World& world) {
  if (!options.mpu) return data_parallel_layout(world.size(), world.rank());
  RankLayout layout{options.mpu->get_data_parallel_group().global_ranks(),
                    options.mpu->get_model_parallel_group().global_ranks(),
                    options.mpu->get_tensor_model_parallel_group().global_ranks()};
  if (layout.data.size() * layout.model.size() != size_t(world.size())) {
    raise<UsageError>("mpu: got a data-parallel group of ", layout.data.size(),
                      " ranks and a model-parallel one of ", layout.model.size(), ", expected a product of ",
                      world.size(), ", the ranks of the world");
  }
  if (!std::ranges::includes(layout.model, layout.slices) ||
      layout.model.size() % layout.slices.size() != 0) {
    raise<UsageError>("mpu: got a tensor-parallel group of the ranks ", c10::ArrayRef<int>(layout.slices),
                      ", expected equal parts of the model-parallel one, ", c10::ArrayRef<int>(layout.model));
  }
  layout.num_stages = int(layout.model.size() / layout.slices.size());
  layout.slices_are_neighbours = !std::ranges::search(layout.model, layout.slices).empty();
  return layout;
}

std::shared_ptr<torch::optim::Optimizer> find_optimizer(const EngineModel& model,
                                                        const InitializeOptions& options) {
  if (!options.optimizer) return nullptr;
  if (options.slice_optimizer) raise<UsageError>("got optimizer and slice_optimizer; expected one of them");
  if (!options.optimizer.is_callable() && !options.model_parameters.empty()) {
    raise<UsageError>("pass either an optimizer, which has its own groups, or model_parameters");
  }
  std::vector<at::Tensor> parameters;
  for (const ModelParameters& group : options.model_parameters) {
    if (!group.options.empty()) {
      raise<UsageError>(
          "model_parameters with options ", group.options.dump(),
          " beside a callable optimizer, which takes parameters alone; leave the options out, or "
          "pass an optimizer with groups of its own");
    }
    parameters.insert(parameters.end(), group.params.begin(), group.params.end());
  }
  if (options.model_parameters.empty()) {
    for (const NamedTensor& param : model.parameters) {
      if (param.tensor.requires_grad()) parameters.push_back(param.tensor);
    }
  }
  return options.optimizer.get(parameters);
}

}  // namespace deepspeed
