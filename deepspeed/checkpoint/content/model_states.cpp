// Builds and parses the dict of a model_states file.
//
// build_model_states() sets the description of the weights first, which is all that zero_to_fp32 needs. The
// optimizer's state of stage 0, the schedule and the counters follow. The caller's own values come last, at
// the top level, as in DeepSpeed. Parsing takes the known keys; files of older versions lack some of them.
// Every other key at the top level belongs to the caller.
#include "deepspeed/checkpoint/content/model_states.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/content/json_value.h"
#include "deepspeed/checkpoint/content/optimizer_states.h"
#include "deepspeed/checkpoint/content/tensor_entry.h"

namespace deepspeed::checkpoint {
namespace {

constexpr auto kOwnKeys = std::to_array<std::string_view>({"module",
                                                           "buffer_names",
                                                           "optimizer",
                                                           "param_shapes",
                                                           "frozen_param_shapes",
                                                           "shared_params",
                                                           "frozen_param_fragments",
                                                           "lr_scheduler",
                                                           "data_sampler",
                                                           "random_ltd",
                                                           "sparse_tensor_module_names",
                                                           "csr_tensor_module_names",
                                                           "skipped_steps",
                                                           "global_steps",
                                                           "global_samples",
                                                           "dp_world_size",
                                                           "mp_world_size",
                                                           "checkpoint_parallel_dimensions",
                                                           "ds_config",
                                                           "ds_version",
                                                           "num_experts",
                                                           "ds_autoep_layers",
                                                           "autoep_layers",
                                                           "folding"});

Dict dict_of_tensors(const NamedTensors& tensors) {
  Dict dict(/*ordered=*/true);
  for (const auto& [name, tensor] : tensors) dict.items().emplace_back(name, tensor);
  return dict;
}

Dict dict_of_shapes(const NamedShapes& shapes) {
  Dict dict(/*ordered=*/true);
  for (const auto& [name, shape] : shapes) dict.items().emplace_back(name, Size{shape});
  return dict;
}

NamedTensors tensors_of(const Value& value) {
  NamedTensors tensors;
  for (const auto& [name, entry] : value.as_dict().items()) {
    const std::string& text = name.as_string();
    // A module may keep extra state of any type, under a name that torch gives it.
    if (text.ends_with("_extra_state") && entry.get_if<Object>() != nullptr) continue;
    if (const auto* tensor = tensor_entry(text, entry)) tensors.emplace_back(text, *tensor);
  }
  return tensors;
}

NamedShapes shapes_of(const Value& value) {
  NamedShapes shapes;
  for (const auto& [name, shape] : value.as_dict().items())
    shapes.emplace_back(name.as_string(), shape.as_size());
  return shapes;
}

/// Returns the value of a key; null if it is absent or None.
const Value* present(const Dict& dict, const char* key) {
  const Value* value = dict.find(key);
  return value == nullptr || value->is_none() ? nullptr : value;
}

int64_t count_of(const Dict& dict, const char* key, int64_t otherwise) {
  const Value* value = present(dict, key);
  return value == nullptr ? otherwise : value->as_int();
}

void put_module_states(Dict& dict, const ModuleStates& states) {
  dict.set("module", states.has_module ? Value(dict_of_tensors(states.module)) : Value());
  List buffer_names;
  for (const std::string& name : states.buffer_names) buffer_names.emplace_back(name);
  dict.set("buffer_names", buffer_names);
  Dict shared;
  for (const auto& [alias, name] : states.shared_params) shared.set(alias, name);
  dict.set("shared_params", shared);
  Value param_shapes;
  if (states.param_shapes) {
    List groups;
    for (const NamedShapes& group : *states.param_shapes) groups.emplace_back(dict_of_shapes(group));
    param_shapes = groups;
  }
  dict.set("param_shapes", param_shapes);
  dict.set("frozen_param_shapes",
           states.frozen_param_shapes ? Value(dict_of_shapes(*states.frozen_param_shapes)) : Value());
  dict.set("frozen_param_fragments",
           states.frozen_param_fragments ? Value(dict_of_tensors(*states.frozen_param_fragments)) : Value());
  dict.set("ds_version", states.ds_version);
}

}  // namespace

Value build_tensors(const NamedTensors& tensors) { return dict_of_tensors(tensors); }

NamedTensors parse_tensors(const Value& value) { return tensors_of(value); }

Value build_model_states(const ModelStates& states) {
  Dict dict;
  put_module_states(dict, states.states);
  dict.set("optimizer", states.optimizer);
  dict.set("lr_scheduler", states.lr_scheduler ? value_of_json(*states.lr_scheduler) : Value());
  dict.set("data_sampler", None{});
  dict.set("random_ltd", None{});
  Set sparse_names;
  for (const std::string& name : states.sparse_names.value_or(std::set<std::string>()))
    sparse_names.items.emplace_back(name);
  dict.set("sparse_tensor_module_names", sparse_names);
  dict.set("skipped_steps", states.skipped_steps);
  dict.set("global_steps", states.global_steps);
  dict.set("global_samples", states.global_samples);
  dict.set("dp_world_size", states.dp_world_size);
  dict.set("mp_world_size", states.mp_world_size);
  dict.set("checkpoint_parallel_dimensions",
           Dict{{"pp_degree", states.pp_degree}, {"tp_degree", states.mp_world_size / states.pp_degree}});
  dict.set("ds_config", value_of_json(states.ds_config));
  for (const auto& [key, value] : states.client_state.items()) {
    const auto* name = key.get_if<std::string>();
    if (name != nullptr && std::ranges::find(kOwnKeys, *name) != kOwnKeys.end()) {
      raise<UsageError>("client_state has the key '", *name,
                        "', which the checkpoint itself uses; give it another name");
    }
    dict.set(key, value);
  }
  return dict;
}

ModuleStates parse_module_states(const Value& value) {
  const Dict& dict = value.as_dict();
  ModuleStates states;
  states.has_module = !dict.at("module").is_none();
  if (states.has_module) states.module = tensors_of(dict.at("module"));
  for (const Value& name : dict.at("buffer_names").as_sequence())
    states.buffer_names.push_back(name.as_string());
  if (const Value* groups = present(dict, "param_shapes")) {
    states.param_shapes.emplace();
    for (const Value& group : groups->as_sequence()) states.param_shapes->push_back(shapes_of(group));
  }
  if (const Value* shapes = present(dict, "frozen_param_shapes"))
    states.frozen_param_shapes = shapes_of(*shapes);
  if (const Value* tensors = present(dict, "frozen_param_fragments")) {
    states.frozen_param_fragments = tensors_of(*tensors);
  }
  if (const Value* shared = present(dict, "shared_params")) {
    for (const auto& [alias, name] : shared->as_dict().items()) {
      states.shared_params.emplace_back(alias.as_string(), name.as_string());
    }
  }
  if (const Value* version = present(dict, "ds_version")) states.ds_version = version->as_string();
  return states;
}

ModelStates parse_model_states(const Value& value) {
  ModelStates states;
  states.states = parse_module_states(value);
  const Dict& dict = value.as_dict();
  // DeepSpeed's BF16_Optimizer repeats one rank's part here. The optimizer files have the parts of all ranks.
  const Value* optimizer = present(dict, "optimizer");
  if (optimizer != nullptr && !is_of_bf16_optimizer(*optimizer)) states.optimizer = *optimizer;
  if (const Value* state = present(dict, "lr_scheduler")) states.lr_scheduler = json_of_value(*state);
  const Value* sparse = present(dict, "sparse_tensor_module_names");
  if (sparse == nullptr) sparse = present(dict, "csr_tensor_module_names");  // in older files
  if (sparse != nullptr) {
    const auto* set = sparse->get_if<Set>();
    states.sparse_names.emplace();
    for (const Value& name : set != nullptr ? set->items : sparse->as_sequence())
      states.sparse_names->insert(name.as_string());
  }
  states.skipped_steps = count_of(dict, "skipped_steps", 0);
  states.global_steps = count_of(dict, "global_steps", 0);
  states.global_samples = count_of(dict, "global_samples", 0);
  states.dp_world_size = count_of(dict, "dp_world_size", 1);
  states.mp_world_size = count_of(dict, "mp_world_size", 1);
  if (const Value* config = present(dict, "ds_config")) states.ds_config = json_of_value(*config);
  for (const auto& [key, item] : dict.items()) {
    const auto* name = key.get_if<std::string>();
    if (name == nullptr || std::ranges::find(kOwnKeys, *name) == kOwnKeys.end()) {
      states.client_state.items().emplace_back(key, item);
    }
  }
  return states;
}

}  // namespace deepspeed::checkpoint
