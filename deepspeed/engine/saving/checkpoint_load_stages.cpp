// Loading a checkpoint: the optimizer's files of all stages that saved it.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/sources/misfit_error.h"
#include "deepspeed/checkpoint/sources/unnamed_stages.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/engine/saving/checkpoint_io.h"

namespace deepspeed {
namespace {

namespace fs = std::filesystem;

std::vector<checkpoint::PipelineLayer> layers_of(const EngineModel& model) {
  std::vector<checkpoint::PipelineLayer> layers;
  for (const LayerWeights& layer : model.layers)
    layers.push_back({layer.prefix, layer.is_tied, layer.stored_as});
  return layers;
}

// A file that is missing is the better complaint than a cut that does not fit for the want of it.
void require_own_layers(const EngineModel& model, const std::string& directory, const std::string& tag) {
  for (const StoredLayer& layer : model.stored_layers) {
    const fs::path path = checkpoint::layer_states_path(directory, tag, layer.index, layer.slice);
    if (!layer.names.empty() && !fs::exists(path)) raise<CheckpointError>("the file ", path, " is missing");
  }
}

}  // namespace

/// Opens what DeepSpeed's pipelines write at ZeRO stage 0, which names no parameters. Whether the order of
/// the stages' own parameters is tried, all ranks decide alike, by the files: a stage alone may fit by
/// chance.
checkpoint::OptimizerFiles CheckpointIo::open_unnamed(
    const std::string& directory, const std::string& tag, const OpenedCheckpoint& opened,
    const std::vector<checkpoint::NamedShapes>& own_shapes) const {
  const size_t num_saved = checkpoint::find_mp_ranks(directory, tag).size();
  const bool is_as_many = num_saved == size_t(parts_.groups.model_size());
  const auto in_own_order = [&] {
    return checkpoint::OptimizerFiles::of_model_file(opened.file, opened.states.optimizer, own_shapes);
  };
  const bool has_slices = parts_.groups.num_slices() > 1;
  const bool has_frozen = std::ranges::any_of(
      parts_.model.parameters, [](const NamedTensor& param) { return !param.tensor.requires_grad(); });
  if (has_slices && is_as_many) return in_own_order();
  if (has_slices || (has_frozen && !is_as_many)) {
    raise<checkpoint::MisfitError>(
        opened.path,
        " does not name the parameters whose optimizer states it holds, as DeepSpeed's pipelines write it at "
        "ZeRO stage 0, and with ",
        has_slices ? "layers that ranks share out" : "frozen parameters",
        " their order does not say it: resume at the number of stages that wrote it, which has ", num_saved,
        " model files, or load with load_optimizer_states = false");
  }
  require_own_layers(parts_.model, directory, tag);
  try {
    return checkpoint::open_unnamed_stages(directory, tag, *opened.archives, layers_of(parts_.model));
  } catch (const checkpoint::MisfitError&) {
    if (!is_as_many) throw;
    return in_own_order();
  }
}

checkpoint::OptimizerFiles CheckpointIo::open_stages(
    const std::string& directory, const std::string& tag, const OpenedCheckpoint& opened,
    const std::vector<checkpoint::NamedShapes>& own_shapes) const {
  using checkpoint::OptimizerFiles;
  const std::vector<int> places = checkpoint::find_mp_ranks(directory, tag);
  const ParallelGroups& groups = parts_.groups;
  const bool is_whole = opened.states.states.has_module;
  const bool is_unnamed = !opened.states.optimizer.is_none() && !opened.states.states.param_shapes;
  if (is_unnamed && !is_whole) return open_unnamed(directory, tag, opened, own_shapes);
  const auto open_stage = [&](int mp_rank, const std::shared_ptr<checkpoint::DeferredArchive>& file,
                              const checkpoint::ModelStates& states) {
    const auto& shapes = states.states.param_shapes;
    if (states.optimizer.is_none())
      return OptimizerFiles::of_partitions(directory, tag, *opened.archives, shapes, mp_rank);
    return OptimizerFiles::of_model_file(file, states.optimizer, shapes.value_or(own_shapes));
  };
  OptimizerFiles result = open_stage(opened.mp_rank, opened.file, opened.states);
  const auto has_all = [&] {
    if (result.holds_nothing()) return true;
    return std::ranges::all_of(own_shapes, [&](const checkpoint::NamedShapes& group) {
      return std::ranges::all_of(group, [&](const auto& param) { return result.holds(param.first); });
    });
  };
  for (const int mp_rank : places) {
    const bool is_of_slice = groups.slice_of(mp_rank, int(places.size())) == groups.slice();
    if (mp_rank == opened.mp_rank || !is_of_slice || is_whole || has_all()) continue;
    const fs::path path = checkpoint::model_states_path(directory, tag, mp_rank);
    const auto file = opened.archives->open(path);
    result.join(open_stage(mp_rank, file, checkpoint::parse_model_states(file->value())));
  }
  return result;
}

}  // namespace deepspeed
