#include "deepspeed/engine/assembly/base_optimizer.h"

#include <set>
#include <string>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/assembly/offload_choices.h"
#include "deepspeed/optim/factory.h"
#include "deepspeed/optim/torch/torch_optimizer.h"

namespace deepspeed {
namespace {

// DeepSpeed's list of optimizers tested with ZeRO; any other needs zero_allow_untested_optimizer. A class
// with one of these names that is neither torch's nor ours is refused earlier: its updates need whole
// parameters.
void check_optimizer(const config::DeepSpeedConfig& config, const std::string& name) {
  static const std::set<std::string> tested = {
      "FusedAdam", "DeepSpeedCPUAdam",    "Adam", "AdamW",      "FusedLion", "DeepSpeedCPULion",
      "Adagrad",   "DeepSpeedCPUAdagrad", "Muon", "OnebitAdam", "OnebitLamb"};
  if (config.zero_optimization.stage == 0 || config.zero_allow_untested_optimizer || tested.count(name) != 0)
    return;
  raise<ConfigError>("zero_allow_untested_optimizer: ", name, " was not tested with ZeRO stage ",
                     config.zero_optimization.stage, "; set it to true to use it all the same");
}

// With bf16_optimizer_states Adam keeps its moments in bf16. The other optimizers have no such option.
Json optimizer_params(const config::DeepSpeedConfig& config) {
  Json params = config.optimizer->params;
  const bool is_adam = optim::is_adam(config.optimizer->type);
  if (!config.bf16.bf16_optimizer_states || !is_adam) return params;
  if (params.is_null()) params = Json::object();
  if (!params.contains("moment_dtype")) params["moment_dtype"] = "bf16";
  return params;
}

}  // namespace

std::unique_ptr<optim::Optimizer> make_base_optimizer(const config::DeepSpeedConfig& config,
                                                      const ClientOptimizer& client, const EngineModel& model,
                                                      std::vector<optim::ParamGroup> groups) {
  std::unique_ptr<optim::Optimizer> optimizer;
  if (client.of_slices) {
    optimizer = client.of_slices(std::move(groups));
    if (!optimizer) raise<UsageError>("slice_optimizer: the callable returned no optimizer");
  } else if (client.torch) {
    std::vector<std::pair<std::string, at::Tensor>> named;
    for (const auto& param : model.parameters) named.emplace_back(param.name, param.tensor);
    optimizer = std::make_unique<optim::TorchOptimizer>(client.torch, named);
  } else {
    const bool on_host = config.zero_optimization.offload_optimizer.device != "none";
    optimizer =
        optim::make_optimizer(config.optimizer->type, optimizer_params(config), std::move(groups), on_host);
  }
  check_optimizer(config, optimizer->name());
  check_offloaded_optimizer(config, *optimizer, /*is_client=*/static_cast<bool>(client));
  if (config.bf16.bf16_optimizer_states && optimizer->state_dtype() != at::kBFloat16) {
    raise<ConfigError>("bf16.bf16_optimizer_states: the state of ", optimizer->name(),
                       " is kept in float32; name Adam or AdamW in `optimizer`, or pass a FusedAdam with "
                       "moment_dtype bfloat16");
  }
  if (config.bf16.split_master_weights && !optimizer->steps_split_masters()) {
    raise<ConfigError>(
        "bf16.split_master_weights: got true with ", optimizer->name(),
        ", which steps fp32 masters alone, expected Adam or AdamW without amsgrad: name one in "
        "`optimizer`, pass a FusedAdam or DeepSpeedCPUAdam, or set the key to false");
  }
  return optimizer;
}

}  // namespace deepspeed
