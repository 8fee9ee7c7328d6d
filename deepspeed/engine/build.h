// Puts an engine together from a config and a model: precision, groups, optimizer, schedule.
#pragma once

#include <memory>
#include <vector>

#include "deepspeed/base/json.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/config/config.h"
#include "deepspeed/engine/engine.h"
#include "deepspeed/engine/model.h"
#include "deepspeed/optim/lr_scheduler_source.h"

namespace torch::optim {
class Optimizer;
}

namespace deepspeed {

/// Parameters that share hyperparameters; `options` override those of the config's `optimizer.params`.
struct ModelParameters {
  std::vector<at::Tensor> params;
  Json options = Json::object();
};

/// Arguments of initialize(), DeepSpeed's names. All but `config` may be left out.
struct InitializeOptions {
  config::ConfigSource config;                                   // path, JSON text or Json object
  std::shared_ptr<torch::optim::Optimizer> optimizer = nullptr;  // instead of the config's `optimizer`
  std::vector<ModelParameters> model_parameters = {};  // default: one group of all that need a gradient
  optim::LrSchedulerSource lr_scheduler = nullptr;  // object or callable, instead of the config's `scheduler`
  int distributed_port = 29500;
  comm::World world = {};  // default: init_distributed()
};

/// The parts of an engine. The model's parameters are cast, flattened and broadcast from rank 0 here.
EngineParts build_engine(EngineModel model, const InitializeOptions& options);

}  // namespace deepspeed
