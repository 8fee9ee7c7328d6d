// Builds and parses the optimizer of a stage-0 checkpoint, in its three forms.
//
// In fp32 it is torch's state_dict. In 16 bits that state_dict is wrapped, together with the masters and the
// loss scaler's members. The masters are flat per group if `fp32_flat` is defined (FusedAdam), otherwise per
// parameter. In fp32 under fp16 autocast the scaler is an additional entry of the state_dict, which torch's
// load_state_dict() ignores. Parsing tells the forms apart by their keys.
#include "deepspeed/checkpoint/content/plain_optimizer.h"

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/content/json_value.h"
#include "deepspeed/checkpoint/content/tensor_entry.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kNames = "param_names";   // torch's own key
constexpr const char* kScaler = "loss_scaler";  // next to an fp32 state_dict under autocast
constexpr const char* kIsDynamic = "dynamic_loss_scale";
constexpr const char* kWrapped = "optimizer_state_dict";
constexpr const char* kFlatMasters = "fp32_groups_flat";
constexpr const char* kMasters = "fp32_groups";

Dict build_state_dict(const std::vector<PlainGroupStates>& groups) {
  Dict state;
  List param_groups;
  int64_t index = 0;
  for (const PlainGroupStates& group : groups) {
    List indices;
    for (const ParamOptimizerState& param : group.params) {
      if (!param.tensors.empty()) {
        Dict entry;
        entry.set("step", param.step);
        for (const auto& [name, tensor] : param.tensors) entry.set(name, tensor);
        for (const auto& [name, number] : param.numbers) entry.set(name, number);
        state.set(index, std::move(entry));
      }
      indices.emplace_back(index++);
    }
    const Value json_options = value_of_json(group.options);
    Dict options = json_options.as_dict();
    options.set("params", std::move(indices));
    if (!group.names.empty()) options.set(kNames, List(group.names.begin(), group.names.end()));
    param_groups.emplace_back(std::move(options));
  }
  return Dict{{"state", std::move(state)}, {"param_groups", std::move(param_groups)}};
}

std::vector<PlainGroupStates> parse_state_dict(const Dict& dict) {
  const Dict& state = dict.at("state").as_dict();
  std::vector<PlainGroupStates> groups;
  for (const Value& value : dict.at("param_groups").as_sequence()) {
    PlainGroupStates& group = groups.emplace_back();
    Dict options;
    for (const auto& [key, option] : value.as_dict().items()) {
      if (key.as_string() == kNames) {
        for (const Value& name : option.as_sequence()) group.names.push_back(name.as_string());
      } else if (key.as_string() != "params") {
        options.set(key, option);
      }
    }
    group.options = json_of_value(options);
    for (const Value& index : value.as_dict().at("params").as_sequence()) {
      ParamOptimizerState& param = group.params.emplace_back();
      const Value* entry = state.find(index.as_int());
      if (entry == nullptr) continue;
      for (const auto& [key, item] : entry->as_dict().items()) {
        if (key.as_string() == "step") {
          param.step = item.as_int();
        } else if (const auto* tensor = tensor_entry(key.as_string(), item)) {
          param.tensors.emplace_back(key.as_string(), *tensor);
        } else if (const auto* number = item.get_if<double>()) {
          param.numbers.emplace_back(key.as_string(), *number);
        }
      }
    }
  }
  return groups;
}

void parse_flat_masters(const std::vector<Value>& flats, PlainOptimizerStates& states) {
  for (size_t index = 0; index < flats.size(); ++index)
    states.groups[index].fp32_flat = flats[index].as_tensor();
}

void parse_masters(const std::vector<Value>& groups, PlainOptimizerStates& states) {
  for (size_t index = 0; index < groups.size(); ++index) {
    for (const Value& master : groups[index].as_sequence())
      states.groups[index].fp32.push_back(master.as_tensor());
  }
}

LossScalerStates parse_scaler(const Dict& dict) {
  LossScalerStates scaler;
  scaler.dynamic = dict.at(kIsDynamic).as_bool();
  scaler.cur_scale = dict.at("cur_scale").as_double();
  scaler.cur_iter = dict.at("cur_iter").as_int();
  if (const Value* last = dict.find("last_overflow_iter")) scaler.last_overflow_iter = last->as_int();
  if (const Value* window = dict.find("scale_window")) scaler.scale_window = window->as_int();
  if (const Value* factor = dict.find("scale_factor")) scaler.scale_factor = factor->as_double();
  if (const Value* left = dict.find("cur_hysteresis")) scaler.cur_hysteresis = left->as_int();
  return scaler;
}

Dict build_scaler(const LossScalerStates& scaler) {
  Dict dict{{kIsDynamic, scaler.dynamic}, {"cur_scale", scaler.cur_scale}, {"cur_iter", scaler.cur_iter}};
  if (scaler.dynamic) {
    dict.set("last_overflow_iter", scaler.last_overflow_iter);
    dict.set("scale_factor", scaler.scale_factor);
    dict.set("scale_window", scaler.scale_window);
    dict.set("cur_hysteresis", scaler.cur_hysteresis);
  }
  return dict;
}

}  // namespace

Value build_plain_optimizer(const PlainOptimizerStates& states) {
  Dict state_dict = build_state_dict(states.groups);
  Dict dict = states.loss_scaler ? build_scaler(*states.loss_scaler) : Dict();
  if (!states.has_masters) {
    // torch's load_state_dict() ignores the entry.
    if (states.loss_scaler) state_dict.set(kScaler, std::move(dict));
    return state_dict;
  }
  dict.set(kWrapped, std::move(state_dict));
  List flats, lists;
  for (const PlainGroupStates& group : states.groups) {
    if (group.fp32_flat.defined()) flats.emplace_back(group.fp32_flat);
    lists.emplace_back(List(group.fp32.begin(), group.fp32.end()));
  }
  if (flats.empty()) {
    dict.set(kMasters, std::move(lists));
    return dict;
  }
  dict.set(kFlatMasters, std::move(flats));
  dict.set("clip_grad", states.clip_grad);
  return dict;
}

PlainOptimizerStates parse_plain_optimizer(const Value& value) {
  const Dict& dict = value.as_dict();
  PlainOptimizerStates states;
  const Value* wrapped = dict.find(kWrapped);
  if (wrapped == nullptr) {
    states.groups = parse_state_dict(dict);
    if (const Value* scaler = dict.find(kScaler)) states.loss_scaler = parse_scaler(scaler->as_dict());
    return states;
  }
  states.has_masters = true;
  states.groups = parse_state_dict(wrapped->as_dict());
  // DeepSpeed's wrapper of FusedAdam has no scaler in bf16.
  if (dict.find(kIsDynamic) != nullptr) states.loss_scaler = parse_scaler(dict);
  if (const Value* clip = dict.find("clip_grad")) states.clip_grad = clip->as_double();
  const bool by_parameter = dict.find(kMasters) != nullptr;
  const char* key = by_parameter ? kMasters : kFlatMasters;
  const auto& masters = dict.at(key).as_sequence();
  if (masters.size() != states.groups.size()) {
    raise<CheckpointError>(key, " has ", masters.size(), " entries, expected one for each of ",
                           states.groups.size(), " parameter groups");
  }
  if (by_parameter) {
    parse_masters(masters, states);
  } else {
    parse_flat_masters(masters, states);
  }
  return states;
}

}  // namespace deepspeed::checkpoint
