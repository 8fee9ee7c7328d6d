// Loads the model's own tensors from a checkpoint.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/sources/fp32_source.h"
#include "deepspeed/checkpoint/sources/misfit_error.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/engine/saving/checkpoint_load.h"
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

// Throws if the file has layers that the model lacks; they would be skipped silently.
void check_layers(const CheckpointLoad& load) {
  const auto last = checkpoint::last_stored_layer(load.directory, load.tag);
  const int num_layers = int(load.parts.model.layers.size());
  if (!last || *last < num_layers) return;
  raise<CheckpointError>(std::filesystem::path(load.directory) / load.tag, " has layer ", *last,
                         ", but the model has ", num_layers, " layers, 0 to ", num_layers - 1,
                         "; make the model that was saved, or load with load_module_strict = false");
}

// Returns a function that reads one tensor of the file.
std::function<at::Tensor()> loader_of(std::shared_ptr<const checkpoint::DeferredArchive> file,
                                      const at::Tensor& tensor) {
  return [file = std::move(file), tensor] { return file->load(tensor); };
}

// Returns this pipeline stage's tensors from the files of its layers.
std::vector<StoredTensor> layers_module(const CheckpointLoad& load,
                                        const std::unordered_set<std::string>& in_masters) {
  std::vector<StoredTensor> module;
  for (const StoredLayer& layer : load.parts.model.stored_layers) {
    if (layer.names.empty()) continue;
    const auto path = checkpoint::layer_states_path(load.directory, load.tag, layer.index, layer.slice);
    if (!std::filesystem::exists(path)) raise<CheckpointError>("the file ", path, " is missing");
    const auto file = load.archives->open(path);
    std::unordered_map<std::string, std::string> in_model(layer.names.begin(), layer.names.end());
    for (const auto& [name, tensor] : checkpoint::parse_tensors(file->value())) {
      const auto found = in_model.find(name);
      const std::string own = found == in_model.end() ? message(layer.index, ".", name) : found->second;
      module.push_back({own, tensor, in_masters.contains(own) ? nullptr : loader_of(file, tensor)});
    }
  }
  return module;
}

// Returns the module of a stage 3 checkpoint. Its model files have shards of frozen parameters only.
// has_masters: the other weights come with the masters.
std::vector<StoredTensor> whole_module(const CheckpointLoad& load, bool has_masters) {
  const checkpoint::ModuleStates& states = load.states.states;
  const auto source = std::make_shared<const checkpoint::Fp32Source>(
      load.directory, load.tag, checkpoint::Fp32Source::Options{.mp_rank = load.mp_rank}, load.archives);
  const auto weights = by_name(source->weights());
  std::unordered_set<std::string> in_masters;
  if (has_masters) in_masters = trained_here_and_there(states, *load.parts.optimizer);
  std::vector<StoredTensor> module;
  for (const auto& [name, tensor] : states.module) {
    const auto weight = weights.find(name);
    if (weight == weights.end() || tensor.numel() > 0) {
      module.push_back({name, tensor, loader_of(load.file, tensor)});
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

// Returns the parameters of an fp32 model that this rank owns as a whole. Their masters are the weights
// themselves, which need not be read twice.
std::unordered_set<std::string> weights_in_masters(const CheckpointLoad& load) {
  std::unordered_set<std::string> names;
  const zero::ZeroOptimizer& optimizer = *load.parts.optimizer;
  if (optimizer.store().dtype() != at::kFloat || !load.parts.config.zero_optimization.load_from_fp32_weights)
    return names;
  for (size_t index = 0; index < optimizer.store().groups().size(); ++index) {
    const zero::StoredGroup& group = optimizer.store().groups()[index];
    for (const zero::ParamPiece& piece : optimizer.state().pieces(index)) {
      const NamedTensor& param = group.params[piece.index];
      if (piece.in_interval.numel() == param.tensor.numel() &&
          load.optimizer->numel(param.name, checkpoint::kMasterState) > 0)
        names.insert(param.name);
    }
  }
  return names;
}

std::unordered_map<std::string, at::Tensor> own_tensors(const EngineModel& model) {
  std::unordered_map<std::string, at::Tensor> own;
  for (const NamedTensor& param : model.parameters) own.emplace(param.name, param.tensor.detach());
  for (const NamedTensor& buffer : model.buffers) own.emplace(buffer.name, buffer.tensor.detach());
  return own;
}

}  // namespace

void open_module(CheckpointLoad& load) {
  const checkpoint::ModuleStates& states = load.states.states;
  const bool has_masters = load.optimizer.has_value() && !load.options.custom_load_fn;
  if (load.is_sharded) {
    load.module = whole_module(load, has_masters);
    return;
  }
  std::unordered_set<std::string> in_masters;
  if (has_masters) in_masters = weights_in_masters(load);
  if (!states.has_module) {
    if (load.options.load_module_strict) check_layers(load);
    load.module = layers_module(load, in_masters);
    return;
  }
  for (const auto& [name, tensor] : states.module)
    load.module.push_back({name, tensor, in_masters.contains(name) ? nullptr : loader_of(load.file, tensor)});
}

void check_module(const CheckpointLoad& load) {
  for (const NamedTensor& param : load.parts.model.parameters) zero::check_settable(param.tensor);
  if (load.options.custom_load_fn) return;
  const std::unordered_map<std::string, at::Tensor> own = own_tensors(load.parts.model);
  std::unordered_set<std::string> aliases, seen;
  for (const auto& [alias, owner] : load.parts.model.shared_parameters) aliases.insert(alias);

  std::vector<std::string> unexpected, missing;
  for (const StoredTensor& stored : load.module) {
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
  for (const auto* tensors : {&load.parts.model.parameters, &load.parts.model.buffers}) {
    for (const NamedTensor& entry : *tensors) {
      if (seen.count(entry.name) == 0) missing.push_back(entry.name);
    }
  }
  if (load.options.load_module_strict && !(missing.empty() && unexpected.empty())) {
    raise<checkpoint::MisfitError>(
        "the file does not fit the model:", missing.empty() ? std::string() : " it lacks " + some(missing),
        unexpected.empty() ? std::string() : " it has, beyond the model, " + some(unexpected),
        "; load_module_strict = false loads what fits");
  }
}

void verify_module(const CheckpointLoad& load) {
  for (const StoredTensor& stored : load.module) {
    if (stored.load) stored.load();
  }
}

void load_module(const CheckpointLoad& load) {
  if (load.options.custom_load_fn) {
    NamedTensors tensors;
    for (const StoredTensor& stored : load.module) tensors.emplace_back(stored.name, stored.load());
    load.options.custom_load_fn(tensors);
    return;
  }
  const std::unordered_map<std::string, at::Tensor> own = own_tensors(load.parts.model);
  for (const StoredTensor& stored : load.module) {
    const auto place = own.find(stored.name);  // a shared weight is stored under its first name too
    if (stored.load && place != own.end()) zero::set_values(place->second, stored.load());
  }
}

}  // namespace deepspeed
