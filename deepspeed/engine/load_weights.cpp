#include "deepspeed/engine/load_weights.h"

#include <vector>

#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/weights/weight_loading.h"
#include "deepspeed/checkpoint/weights/weight_source.h"
#include "deepspeed/comm/on_all_ranks.h"
#include "deepspeed/engine/model/describe_module.h"
#include "deepspeed/engine/training_engine.h"
#include "deepspeed/zero/params/set_values.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed {
namespace {

std::vector<checkpoint::WeightTarget> targets_of(const EngineModel& model) {
  std::vector<checkpoint::WeightTarget> targets;
  for (const NamedTensor& param : model.parameters) {
    auto& target = targets.emplace_back(checkpoint::WeightTarget{{param.name}, param.tensor});
    if (zero::is_partitioned(param.tensor)) {
      target.set = [tensor = param.tensor](const at::Tensor& values) { zero::set_values(tensor, values); };
    }
    for (const auto& [alias, name] : model.shared_parameters) {
      if (name == param.name) target.names.push_back(alias);
    }
  }
  for (const NamedTensor& buffer : model.buffers) targets.push_back({{buffer.name}, buffer.tensor});
  return targets;
}

LoadedWeights load_from(std::unique_ptr<checkpoint::WeightSource> source, const EngineModel& model,
                        const LoadWeightsOptions& options) {
  const checkpoint::WeightLoading loading(std::move(source), targets_of(model), options);
  loading.run();
  return loading.result();
}

}  // namespace

LoadedWeights load_weights(const std::shared_ptr<torch::nn::Module>& model, const std::filesystem::path& path,
                           const LoadWeightsOptions& options) {
  return load_from(checkpoint::open_weights(path, options.key), describe_module(model), options);
}

LoadedWeights load_weights(TrainingEngine& engine, const std::filesystem::path& path,
                           const LoadWeightsOptions& options) {
  constexpr const char* kLoading = "loading weights";
  std::optional<checkpoint::WeightLoading> loading;
  comm::on_all_ranks<CheckpointError>(engine.data_parallel_group(), kLoading, [&] {
    engine.require_states_here("load_weights");
    if (engine.optimizer()) engine.optimizer()->state().check_no_step_has_begun();
    for (const NamedTensor& param : engine.model().parameters) zero::check_settable(param.tensor);
    loading.emplace(checkpoint::open_weights(path, options.key), targets_of(engine.model()), options);
  });
  comm::on_all_ranks<CheckpointError>(engine.data_parallel_group(), kLoading, [&] { loading->run(); });
  if (engine.optimizer()) engine.optimizer()->state().restore_masters_from_model();
  log::info("loaded the weights of ", path.string());
  return loading->result();
}

LoadedWeights load_zero_checkpoint_weights(const std::shared_ptr<torch::nn::Module>& model,
                                           const std::filesystem::path& dir,
                                           const std::optional<std::string>& tag,
                                           const LoadWeightsOptions& options) {
  return load_from(checkpoint::open_zero_checkpoint(dir, tag, options.mp_rank), describe_module(model),
                   options);
}

}  // namespace deepspeed
