// Gives names to the optimizer states of pipeline stages.
//
// The model files of all stages hold the states (open_stages). The files of all layers hold shapes
// (layers_of). A layer's file also has buffers, which the model files list. find_cuts() then tells which
// parameters each stage's optimizer had, and the files are joined by name. Optimizers without states need no
// cut, because only their options and the counts of their parameters are read.
#include "deepspeed/checkpoint/sources/unnamed_stages.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/checkpoint/content/plain_optimizer.h"
#include "deepspeed/checkpoint/sources/layer_cut.h"
#include "deepspeed/checkpoint/sources/misfit_error.h"
#include "deepspeed/checkpoint/tag/layout.h"

namespace deepspeed::checkpoint {
namespace {

namespace fs = std::filesystem;

struct UnnamedStage {
  std::shared_ptr<DeferredArchive> file;
  ModelStates states;
  PlainGroupStates group;
};

std::string way_out(size_t num_stages) {
  return message("; resume at the number of stages that wrote it, which is ", num_stages,
                 ", or load with load_optimizer_states = false");
}

std::vector<UnnamedStage> open_stages(const fs::path& dir, const std::string& tag,
                                      const TagArchives& archives) {
  std::vector<UnnamedStage> stages;
  const std::vector<int> places = find_mp_ranks(dir, tag);
  for (const int place : places) {
    const fs::path path = model_states_path(dir, tag, place);
    UnnamedStage& stage = stages.emplace_back();
    stage.file = archives.open(path);
    stage.states = parse_model_states(stage.file->value());
    if (stage.states.optimizer.is_none()) raise<CheckpointError>(path, " holds no optimizer states");
    std::vector<PlainGroupStates> groups = parse_plain_optimizer(stage.states.optimizer).groups;
    if (groups.size() != 1) {
      raise<MisfitError>(path, " has ", groups.size(),
                         " parameter groups without the names of their parameters, expected one",
                         way_out(places.size()));
    }
    stage.group = std::move(groups.front());
  }
  return stages;
}

bool has_states(const UnnamedStage& stage) {
  const PlainGroupStates& group = stage.group;
  return group.fp32_flat.defined() || !group.fp32.empty() ||
         std::ranges::any_of(group.params, [](const auto& param) { return !param.tensors.empty(); });
}

/// Returns the parameters in a layer's file, without buffers, under their names in the model.
NamedShapes parameters_in(const DeferredArchive& file, const std::string& prefix,
                          const std::unordered_set<std::string>& buffers) {
  NamedShapes params;
  for (const auto& [name, tensor] : parse_tensors(file.value())) {
    const std::string in_model = message(prefix, ".", name);
    if (!buffers.contains(in_model)) params.emplace_back(in_model, tensor.sizes().vec());
  }
  return params;
}

/// Returns the parameters of each layer. A layer without a file has no weights.
std::vector<LayerParameters> layers_of(const fs::path& dir, const std::string& tag,
                                       const TagArchives& archives, const std::vector<PipelineLayer>& layers,
                                       const std::vector<UnnamedStage>& stages) {
  std::unordered_set<std::string> buffers;
  for (const UnnamedStage& stage : stages)
    buffers.insert(stage.states.states.buffer_names.begin(), stage.states.states.buffer_names.end());
  std::map<int, fs::path> files;
  for (LayerStatesFile& file : find_layer_states(dir, tag)) files.emplace(file.layer, std::move(file.path));
  std::vector<LayerParameters> result;
  std::map<std::string, NamedShapes> opened;  // by prefix
  for (const PipelineLayer& layer : layers) {
    const auto file = files.find(layer.stored_as);
    const auto [params, is_new] = opened.try_emplace(layer.prefix);
    if (is_new && file != files.end()) {
      params->second = parameters_in(*archives.open(file->second), layer.prefix, buffers);
    }
    result.push_back({params->second, layer.is_tied});
  }
  return result;
}

/// Lists the layers for which no weights were found, for messages: a file may be missing.
std::string layers_without_weights(const std::vector<LayerParameters>& layers) {
  std::string text;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    if (layers[layer].params.empty()) text += message(text.empty() ? "" : ", ", layer);
  }
  return text.empty() ? text : message(" (layers without weights in files: ", text, ")");
}

StageParameters only_cut(const fs::path& folder, const std::vector<UnnamedStage>& stages,
                         const std::vector<LayerParameters>& layers) {
  std::vector<StageSizes> sizes;
  for (const UnnamedStage& stage : stages) sizes.push_back(sizes_of(stage.group));
  std::vector<StageParameters> cuts = find_cuts(layers, sizes);
  if (cuts.size() == 1) return std::move(cuts.front());
  raise<MisfitError>(folder, " does not name the parameters whose optimizer states it holds, as DeepSpeed's ",
                     "pipelines write it at ZeRO stage 0, and ",
                     cuts.empty() ? "no cut" : "more than one cut", " of its ", layers.size(),
                     " layers into ", stages.size(), " stages has parameters of their sizes",
                     layers_without_weights(layers), way_out(stages.size()));
}

}  // namespace

OptimizerFiles open_unnamed_stages(const fs::path& dir, const std::string& tag, const TagArchives& archives,
                                   const std::vector<PipelineLayer>& layers) {
  const std::vector<UnnamedStage> stages = open_stages(dir, tag, archives);
  StageParameters names;
  if (std::ranges::any_of(stages, has_states)) {
    names = only_cut(dir / tag, stages, layers_of(dir, tag, archives, layers, stages));
  } else {
    for (const UnnamedStage& stage : stages) names.emplace_back(stage.group.params.size());
  }
  std::optional<OptimizerFiles> result;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    OptimizerFiles files =
        OptimizerFiles::of_model_file(stages[stage].file, stages[stage].states.optimizer, {names[stage]});
    if (result) {
      result->join(std::move(files));
    } else {
      result = std::move(files);
    }
  }
  if (!result) raise<CheckpointError>(dir / tag, " has no model files");
  return std::move(*result);
}

}  // namespace deepspeed::checkpoint
