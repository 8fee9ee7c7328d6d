// What prepare() decides before it makes an engine: the "auto" values, and whether optimizer and schedule fit
// the config.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "deepspeed/accelerate/accelerator/gradient_state.h"
#include "deepspeed/accelerate/accelerator/optimizer.h"
#include "deepspeed/accelerate/accelerator/scheduler.h"
#include "deepspeed/accelerate/plugin/deepspeed_plugin.h"
#include "deepspeed/base/export.h"
#include "deepspeed/engine/assembly/initialize_options.h"
#include "deepspeed/engine/model/leaf_modules.h"

namespace deepspeed::accelerate {

/// Describes the arguments of one prepare().
struct PrepareRequest {
  std::vector<int64_t> batch_sizes;  ///< of the loaders, as the program gave them
  bool has_model = false;
  ModulePtr module;                   ///< null for a model that is no torch module
  bool has_config = false;            ///< the model has a member `config`
  std::vector<int64_t> hidden_sizes;  ///< config.hidden_size, else all of config.hidden_sizes
  std::shared_ptr<torch::optim::Optimizer> optimizer;  ///< the program's own
  std::shared_ptr<DummyOptim> dummy_optim;
  std::shared_ptr<torch::optim::LRScheduler> scheduler;  ///< the program's own
  std::shared_ptr<DummyScheduler> dummy_scheduler;
};

/// Fills the plugin's config and returns the arguments of initialize(). Throws ConfigError, with Accelerate's
/// words, for a value that cannot be filled and for an optimizer or schedule that does not fit the config.
DEEPSPEED_API InitializeOptions plan_prepare(DeepSpeedPlugin& plugin, const PrepareRequest& request,
                                             GradientState& state, int num_processes, bool split_batches);

}  // namespace deepspeed::accelerate
