// The arguments of initialize().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/config/arguments.h"
#include "deepspeed/config/table/source.h"
#include "deepspeed/engine/build/optimizer_source.h"
#include "deepspeed/optim/schedules/lr_scheduler_source.h"
#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed {

namespace optim {
class Optimizer;
}
class Mpu;

/// Makes an optimizer of flat slices (optim/slices/optimizer.h) over groups whose options it completes.
using SliceOptimizerFactory =
    std::function<std::unique_ptr<optim::Optimizer>(std::vector<optim::ParamGroup> groups)>;

/// Parameters that share hyperparameters; `options` override those of the config's `optimizer.params`.
struct DEEPSPEED_API ModelParameters {
  std::vector<at::Tensor> params;
  Json options = Json::object();
};

/// Arguments of initialize(), DeepSpeed's names. All but one of `config`, `args` with --deepspeed_config and
/// `config_params` may be left out.
struct InitializeOptions {
  std::optional<config::ConfigSource> config = {};  // path, JSON text or Json object
  OptimizerSource optimizer = nullptr;              // object or callable, instead of the config's
  /// Makes an optimizer of the program's own that every stage can step: it sees flat slices in place of
  /// parameters, so that its updates must be elementwise where a stage cuts parameters. Not beside
  /// `optimizer`; its groups are those of model_parameters.
  SliceOptimizerFactory slice_optimizer = nullptr;
  std::vector<ModelParameters> model_parameters = {};  // default: one group of all that need a gradient
  optim::LrSchedulerSource lr_scheduler = nullptr;  // object or callable, instead of the config's `scheduler`
  int distributed_port = 29500;
  comm::World world = {};                                  // default: init_distributed()
  std::optional<ConfigArguments> args = {};                // what add_config_arguments() has filled in
  std::optional<config::ConfigSource> config_params = {};  // the older name of `config`
  std::shared_ptr<Mpu> mpu = nullptr;  // of a program that shares the model out itself (engine/ranks/mpu.h)
  std::optional<std::vector<int64_t>> mesh_param = {};  // (ranks, 1)
  std::optional<bool> dist_init_required = {};  // false: init_distributed() must have run; else it runs here
  // Which engines of the ranks belong together, where several threads initialize: the same on all ranks. "":
  // the nth of one rank and the nth of the others.
  std::string engine_name = {};
  // Whether each rank's default generators get a stream of their own, which follows from the seed. false:
  // they go on as they are, unless the config has a `seed`.
  bool starts_rank_streams = true;
};

}  // namespace deepspeed
