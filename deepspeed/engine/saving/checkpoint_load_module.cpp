// Loads the model's own tensors from a checkpoint.
#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/sources/fp32_source.h"
#include "deepspeed/checkpoint/sources/misfit_error.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/engine/saving/checkpoint_loader.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/params/set_values.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed {
namespace {

// Returns the first few of a list of names, for messages.
std::string some(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 5); ++i)
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  if (names.size() > 5) text += message(" and ", names.size() - 5, " more");
  return text;
}

// Returns the parameters that both the checkpoint's optimizer and the engine's update.
std::unordered_set<std::string> trained_here_and_there(const checkpoint::ModuleStates& states,
                                                       const zero::ZeroOptimizer& optimizer) {
  std::unordered_set<std::string> there, both;
  for (const checkpoint::NamedShapes& group : *states.param_shapes) {
    for (const auto& [name, sizes] : group) there.insert(name);
  }
  for (const zero::StoredGroup& group : optimizer.store().groups()) {
    for (const NamedTensor& param : group.params) {
      if (there.contains(param.name)) both.insert(param.name);
    }
  }
  return both;
}

// Otherwise layers that the model lacks would be skipped silently.
void check_layers(const std::string& directory, const std::string& tag, const EngineModel& model) {
  const auto last = checkpoint::last_stored_layer(directory, tag);
  const int num_layers = int(model.layers.size());
  if (!last || *last < num_layers) return;
  raise<CheckpointError>(std::filesystem::path(directory) / tag, " has layer ", *last, ", but the model has ",
                         num_layers, " layers, 0 to ", num_layers - 1,
                         "; make the model that was saved, or load with load_module_strict = false");
}

}  // namespace

void CheckpointLoader::open_module(const std::string& directory, const std::string& tag,
                                   const LoadOptions& options, OpenedCheckpoint& opened) const {
  const checkpoint::ModuleStates& states = opened.states.states;
  const bool has_masters = opened.optimizer.has_value() && !options.custom_load_fn;
  if (opened.is_sharded) {
    opened.module = whole_module(directory, tag, opened, has_masters);
    return;
  }
  std::unordered_set<std::string> in_masters;
  if (has_masters) in_masters = weights_in_masters(*opened.optimizer);
  if (!states.has_module) {
    if (options.load_module_strict) check_layers(directory, tag, parts_.model);
    opened.module = layers_module(directory, tag, opened, in_masters);
    return;
  }
  for (const auto& [name, tensor] : states.module)
    opened.module.push_back(
        {name, tensor, in_masters.contains(name) ? nullptr : loader_of(opened.file, tensor)});
}

/// Returns this pipeline stage's tensors from the files of its layers.
StoredModule CheckpointLoader::layers_module(const std::string& directory, const std::string& tag,
                                             const OpenedCheckpoint& opened,
                                             const std::unordered_set<std::string>& in_masters) const {
  StoredModule module;
  for (const StoredLayer& layer : parts_.model.stored_layers) {
    if (layer.names.empty()) continue;
    const auto path = checkpoint::layer_states_path(directory, tag, layer.index, layer.slice);
    if (!std::filesystem::exists(path)) raise<CheckpointError>("the file ", path, " is missing");
    const auto file = opened.archives->open(path);
    std::unordered_map<std::string, std::string> in_model(layer.names.begin(), layer.names.end());
    for (const auto& [name, tensor] : checkpoint::parse_tensors(file->value())) {
      const auto found = in_model.find(name);
      const std::string own = found == in_model.end() ? message(layer.index, ".", name) : found->second;
      module.push_back({own, tensor, in_masters.contains(own) ? nullptr : loader_of(file, tensor)});
    }
  }
  return module;
}

/// Returns the module of a stage 3 checkpoint. Its model files have shards of frozen parameters only.
/// has_masters: the other weights come with the masters.
StoredModule CheckpointLoader::whole_module(const std::string& directory, const std::string& tag,
                                            const OpenedCheckpoint& opened, bool has_masters) const {
  const checkpoint::ModuleStates& states = opened.states.states;
  const auto source = std::make_shared<const checkpoint::Fp32Source>(
      directory, tag, checkpoint::Fp32Source::Options{.mp_rank = opened.mp_rank}, opened.archives);
  const auto weights = by_name(source->weights());
  std::unordered_set<std::string> in_masters;
  if (has_masters) in_masters = trained_here_and_there(states, *parts_.optimizer);
  StoredModule module;
  for (const auto& [name, tensor] : states.module) {
    const auto weight = weights.find(name);
    if (weight == weights.end() || tensor.numel() > 0) {
      module.push_back({name, tensor, loader_of(opened.file, tensor)});
    } else if (in_masters.contains(name)) {
      module.push_back({name, weight->second, nullptr});
    } else {
      module.push_back({name, weight->second, [source, form = weight->second, type = tensor.scalar_type()] {
                          return source->load(form).to(type);
                        }});
    }
  }
  return module;
}

/// Returns the parameters that lie inside the owned interval in fp32. There the masters are the weights, so
/// these need not be read twice.
std::unordered_set<std::string> CheckpointLoader::weights_in_masters(
    const checkpoint::OptimizerFiles& source) const {
  std::unordered_set<std::string> names;
  const zero::ZeroOptimizer& optimizer = *parts_.optimizer;
  if (optimizer.store().dtype() != at::kFloat || !parts_.config.zero_optimization.load_from_fp32_weights)
    return names;
  for (size_t index = 0; index < optimizer.store().groups().size(); ++index) {
    const zero::StoredGroup& group = optimizer.store().groups()[index];
    for (const zero::ParamPiece& piece : optimizer.state().pieces(index)) {
      const NamedTensor& param = group.params[piece.index];
      if (piece.in_interval.numel() == param.tensor.numel() &&
          source.numel(param.name, checkpoint::kMasterState) > 0)
        names.insert(param.name);
    }
  }
  return names;
}

std::unordered_map<std::string, at::Tensor> CheckpointLoader::own_tensors() const {
  std::unordered_map<std::string, at::Tensor> own;
  for (const NamedTensor& param : parts_.model.parameters) own.emplace(param.name, param.tensor.detach());
  for (const NamedTensor& buffer : parts_.model.buffers) own.emplace(buffer.name, buffer.tensor.detach());
  return own;
}

void CheckpointLoader::check_module(const StoredModule& module, bool strict) const {
  const std::unordered_map<std::string, at::Tensor> own = own_tensors();
  std::unordered_set<std::string> aliases, seen;
  for (const auto& [alias, owner] : parts_.model.shared_parameters) aliases.insert(alias);

  std::vector<std::string> unexpected, missing;
  for (const StoredTensor& stored : module) {
    if (aliases.count(stored.name) != 0) continue;  // stored under the first name too
    const auto entry = own.find(stored.name);
    if (entry == own.end()) {
      unexpected.push_back(stored.name);
      continue;
    }
    if (entry->second.sizes() != stored.form.sizes()) {
      raise<checkpoint::MisfitError>("'", stored.name, "' has sizes ", stored.form.sizes(),
                                     " in the file, the model's has ", entry->second.sizes());
    }
    seen.insert(stored.name);
  }
  for (const auto* tensors : {&parts_.model.parameters, &parts_.model.buffers}) {
    for (const NamedTensor& entry : *tensors) {
      if (seen.count(entry.name) == 0) missing.push_back(entry.name);
    }
  }
  if (strict && !(missing.empty() && unexpected.empty())) {
    raise<checkpoint::MisfitError>(
        "the file does not fit the model:", missing.empty() ? std::string() : " it lacks " + some(missing),
        unexpected.empty() ? std::string() : " it has, beyond the model, " + some(unexpected),
        "; load_module_strict = false loads what fits");
  }
}

void CheckpointLoader::load_module(const StoredModule& module) {
  const std::unordered_map<std::string, at::Tensor> own = own_tensors();
  for (const StoredTensor& stored : module) {
    const auto place = own.find(stored.name);  // a shared weight is stored under its first name too
    if (stored.load && place != own.end()) zero::set_values(place->second, stored.load());
  }
}

}  // namespace deepspeed
