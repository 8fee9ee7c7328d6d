#include "deepspeed/checkpoint/plain_optimizer.h"

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/json_value.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kNames = "param_names";   // torch's own key
constexpr const char* kScaler = "loss_scaler";  // beside a state_dict of fp32 that autocast trains with

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
        } else if (const auto* tensor = item.get_if<at::Tensor>()) {
          param.tensors.emplace_back(key.as_string(), *tensor);
        }
      }
    }
  }
  return groups;
}

LossScalerStates parse_scaler(const Dict& dict) {
  LossScalerStates scaler;
  scaler.dynamic = dict.at("dynamic_loss_scale").as_bool();
  scaler.cur_scale = dict.at("cur_scale").as_double();
  scaler.cur_iter = dict.at("cur_iter").as_int();
  if (const Value* last = dict.find("last_overflow_iter")) scaler.last_overflow_iter = last->as_int();
  if (const Value* window = dict.find("scale_window")) scaler.scale_window = window->as_int();
  if (const Value* factor = dict.find("scale_factor")) scaler.scale_factor = factor->as_double();
  if (const Value* left = dict.find("cur_hysteresis")) scaler.cur_hysteresis = left->as_int();
  return scaler;
}

Dict build_scaler(const LossScalerStates& scaler) {
  Dict dict{
      {"dynamic_loss_scale", scaler.dynamic}, {"cur_scale", scaler.cur_scale}, {"cur_iter", scaler.cur_iter}};
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
  if (!states.loss_scaler) return state_dict;
  Dict dict = build_scaler(*states.loss_scaler);
  if (!states.has_masters) {
    state_dict.set(kScaler, std::move(dict));  // torch's load_state_dict() passes over it
    return state_dict;
  }
  dict.set("optimizer_state_dict", std::move(state_dict));
  List flats;
  for (const PlainGroupStates& group : states.groups) flats.emplace_back(group.fp32_flat);
  dict.set("fp32_groups_flat", std::move(flats));
  dict.set("clip_grad", states.clip_grad);
  return dict;
}

PlainOptimizerStates parse_plain_optimizer(const Value& value) {
  const Dict& dict = value.as_dict();
  PlainOptimizerStates states;
  const Value* wrapped = dict.find("optimizer_state_dict");
  if (wrapped == nullptr) {
    states.groups = parse_state_dict(dict);
    if (const Value* scaler = dict.find(kScaler)) states.loss_scaler = parse_scaler(scaler->as_dict());
    return states;
  }
  states.has_masters = true;
  states.groups = parse_state_dict(wrapped->as_dict());
  states.loss_scaler = parse_scaler(dict);
  if (const Value* clip = dict.find("clip_grad")) states.clip_grad = clip->as_double();
  const auto& flats = dict.at("fp32_groups_flat").as_sequence();
  if (flats.size() != states.groups.size()) {
    raise<CheckpointError>("checkpoint", "fp32_groups_flat has ", flats.size(),
                           " tensors, expected one for each of ", states.groups.size(), " parameter groups");
  }
  for (size_t index = 0; index < flats.size(); ++index)
    states.groups[index].fp32_flat = flats[index].as_tensor();
  return states;
}

}  // namespace deepspeed::checkpoint
