// The files of a stage's layers: the tensors in each file for an engine's checkpoints, and how a module
// itself writes and reads them.
#include <algorithm>
#include <filesystem>

#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/file/atomic_file.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/manifest.h"
#include "deepspeed/engine/model/model_tensors.h"
#include "deepspeed/pipe/module/pipeline_module.h"
#include "deepspeed/pipe/module/stage_model.h"

namespace deepspeed::pipe {
namespace {

namespace fs = std::filesystem;

fs::path file_of(const fs::path& folder, int layer, const std::string& slice) {
  return folder / checkpoint::layer_states_path("", "", layer, slice).filename();
}

}  // namespace

std::string PipelineModule::slice() const { return topology().get_rank_repr(grid().global_rank()); }

void PipelineModule::describe_files() {
  for (int layer = 0; layer < num_layers(); ++layer)
    model_.layers.push_back({.prefix = std::to_string(layer), .stored_as = layer});
  for (const auto& [key, tied] : ties_) {
    for (const int layer : tied.layers)
      model_.layers[size_t(layer)] = {"tied_modules." + key, /*is_tied=*/true, tied.stored_as};
  }
  for (const StageLayer& layer : layers_) add_file_of(layer);
  // If no layer here has a file of the tied module, the module's weights are in another stage's file.
  for (const auto& [key, tied] : ties_) {
    if (!tied_modules_.contains(key)) continue;
    const auto stored = [&](const StoredLayer& file) { return file.index == tied.stored_as; };
    if (std::ranges::any_of(model_.stored_layers, stored)) continue;
    const bool has_own = std::ranges::any_of(layers_, [&, name = key](const StageLayer& layer) {
      return layer.tied_key == name && !layer.has_forward_fn;
    });
    if (has_own) continue;
    const auto layer = std::ranges::find(layers_, key, &StageLayer::tied_key);
    StageLayer elsewhere = *layer;
    elsewhere.index = tied.stored_as;
    elsewhere.has_forward_fn = false;
    add_file_of(elsewhere);
    model_.stored_layers.back().is_written = stage_of(tied.stored_as) == stage_id();
  }
}

void PipelineModule::add_file_of(const StageLayer& layer) {
  const EngineModel& model = layer.layer.model;
  const bool is_function = !model.set_training;
  if (layer.has_forward_fn || is_function) return;
  StoredLayer& file = model_.stored_layers.emplace_back();
  file.index = layer.index;
  file.slice = slice();
  const auto add = [&](const std::string& name) {
    file.names.emplace_back(name, name_in(layer.prefix, name));
  };
  for (const NamedTensor& param : model.parameters) add(param.name);
  for (const auto& [alias, owner] : model.shared_parameters) add(alias);
  for (const NamedTensor& buffer : model.buffers) add(buffer.name);
}

std::string PipelineModule::ckpt_prefix(const std::string& checkpoints_path, const std::string& tag) const {
  const std::string place = topology().get_rank_repr(grid().global_rank(), {"data"});
  return (fs::path(checkpoints_path) / tag / (place.empty() ? "module" : "module-" + place)).string();
}

std::string PipelineModule::ckpt_layer_path(const std::string& ckpt_dir, int local_layer_idx) const {
  if (local_layer_idx < 0 || local_layer_idx >= int(layers_.size())) {
    raise<UsageError>("ckpt_layer_path(): local_layer_idx is ", local_layer_idx, ", expected 0 to ",
                      layers_.size() - 1, ", the layers of this stage");
  }
  return file_of(ckpt_dir, layers_[size_t(local_layer_idx)].index, slice()).string();
}

void PipelineModule::save_state_dict(const std::string& save_dir, bool exclude_frozen_params) const {
  if (grid().data_parallel_id() != 0) return;
  checkpoint::make_folders(save_dir);
  for (const auto& [layer, tensors] : layer_tensors(model_, exclude_frozen_params)) {
    checkpoint::write_torch_archive(file_of(save_dir, layer->index, layer->slice),
                                    checkpoint::build_tensors(tensors));
  }
}

void PipelineModule::load_state_dir(const std::string& load_dir, bool strict) {
  const c10::NoGradGuard no_grad;
  const auto own = by_name(module_tensors(model_, /*exclude_frozen=*/false));
  for (const StoredLayer& layer : model_.stored_layers) {
    if (layer.names.empty()) continue;
    const fs::path path = file_of(load_dir, layer.index, layer.slice);
    if (!fs::exists(path)) raise<CheckpointError>("the file ", path, " is missing");
    const auto stored = by_name(checkpoint::parse_tensors(checkpoint::read_torch_archive(path)));
    for (const auto& [name, in_model] : layer.names) {
      const auto found = stored.find(name);
      if (found == stored.end()) {
        if (strict)
          raise<CheckpointError>(path, " has no '", name, "'; with strict = false it keeps its values");
        continue;
      }
      const at::Tensor& target = own.at(in_model);
      if (target.sizes() != found->second.sizes()) {
        raise<CheckpointError>("'", name, "' of ", path, " has sizes ", found->second.sizes(),
                               ", the model's has ", target.sizes());
      }
      target.copy_(found->second);
    }
  }
}

}  // namespace deepspeed::pipe
