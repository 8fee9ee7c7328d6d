// Builds and parses the dict of an optim_states file, in DeepSpeed's two forms.
//
// Stages 1 and 2 keep one flat partition per group, and the positions of parameters in it
// (param_slice_mappings). Stage 3 keeps one flat tensor per sub-group, under other keys. In both forms the
// optimizer's state is torch's state_dict with these flat tensors as its parameters. Both are read into
// PartitionStates. DeepSpeed's BF16_Optimizer writes the first form, with padding but without a stage or loss
// scaler. It serves bf16 pipelines at stage 0, and stage 1 with gradient sums in fp32. Pairs such as betas
// are tuples in Python and arrays in JSON.
#include "deepspeed/checkpoint/content/optimizer_states.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/content/json_value.h"
#include "deepspeed/checkpoint/content/tensor_entry.h"

namespace deepspeed::checkpoint {
namespace {

// These keys exist only in files of stage 3.
constexpr const char* kShardedPartitions = "fp32_flat_groups";
constexpr const char* kShardedBaseState = "optimizer_state_dict";

constexpr const char* kPartitions = "single_partition_of_fp32_groups";
constexpr const char* kStage = "zero_stage";

constexpr const char* kStageModule = "deepspeed.runtime.zero.config";
constexpr const char* kStageClass = "ZeroStageEnum";

Object build_stage(int stage) { return Object{kStageModule, kStageClass, {stage}, nullptr}; }

/// Reads the ZeRO stage. It is a number, `ZeroStageEnum(2)`, or a member's name as Python 3.11.2 pickles
/// enumerations.
int64_t number_of_stage(const Value& stage) {
  if (const auto* object = stage.get_if<Object>()) {
    if (object->arguments.size() != 1) raise<CheckpointError>("'zero_stage' has no value");
    return object->arguments[0].as_int();
  }
  const auto* member = stage.get_if<Global>();
  if (member == nullptr) return stage.as_int();
  constexpr const char* kMembers[] = {"disabled", "optimizer_states", "gradients", "weights"};
  for (int number = 0; number < 4; ++number) {
    if (member->module == kStageModule && member->name == message(kStageClass, ".", kMembers[number]))
      return number;
  }
  raise<CheckpointError>("'zero_stage' is ", member->module, ".", member->name, ", expected a member of ",
                         kStageClass);
}

/// Returns a hyperparameter as Python's optimizers hold it: pairs (betas) become tuples.
Value value_of_option(const Json& option) {
  Value value = value_of_json(option);
  if (auto* list = value.get_if<List>()) return Tuple{*list};
  return value;
}

bool are_of_one_group(const ZeroOptimizerStates& states, size_t one, size_t other) {
  return states.zero_stage == 3 && states.groups[one].param_group == states.groups[other].param_group;
}

Dict build_base_state(const ZeroOptimizerStates& states) {
  Dict state;
  List param_groups;
  for (size_t index = 0; index < states.groups.size(); ++index) {
    const PartitionStates& group = states.groups[index];
    Dict slice;
    if (group.step) slice.set("step", *group.step);
    for (const auto& [name, tensor] : group.tensors) slice.set(name, tensor);
    const Dict numbers = build_parameter_numbers(group.numbers);
    for (const auto& [name, by_parameter] : numbers.items()) slice.set(name.as_string(), by_parameter);
    if (slice.size() > 0) state.set(int64_t(index), slice);
  }
  for (size_t index = 0; index < states.groups.size();) {
    Dict options;
    for (const auto& [name, option] : states.groups[index].options.items())
      options.set(name, value_of_option(option));
    List params{int64_t(index)};
    const size_t first = index++;
    for (; index < states.groups.size() && are_of_one_group(states, first, index); ++index)
      params.emplace_back(int64_t(index));
    options.set("params", params);
    param_groups.emplace_back(options);
  }
  return Dict{{"state", state}, {"param_groups", param_groups}};
}

Dict build_fragments(const PartitionStates& group) {
  Dict fragments(/*ordered=*/true);
  for (const auto& [name, address] : group.fragments) {
    const auto members = std::make_shared<Value>(Dict{{"numel", address.numel}, {"start", address.start}});
    fragments.set(
        name,
        Object{"deepspeed.utils.tensor_fragment", "fragment_address", {}, members, Object::Making::kNew});
  }
  return fragments;
}

void parse_fragments(const Value& value, PartitionStates& group) {
  for (const auto& [name, address] : value.as_dict().items()) {
    const auto* object = address.get_if<Object>();
    if (object == nullptr || object->state == nullptr) {
      raise<CheckpointError>("the fragment of '", name.as_string(), "' is a ", address.kind());
    }
    const Dict& members = object->state->as_dict();
    group.fragments.emplace_back(name.as_string(),
                                 FragmentAddress{members.at("numel").as_int(), members.at("start").as_int()});
  }
}

void parse_base_state(const Value& value, std::vector<PartitionStates>& groups) {
  if (value.get_if<Dict>() == nullptr) {
    raise<NotSupportedError>(
        "the file was written with elastic_checkpoint, which is not supported; save it without that option");
  }
  const Dict& state = value.as_dict().at("state").as_dict();
  const std::vector<Value>& param_groups = value.as_dict().at("param_groups").as_sequence();
  size_t partitions = 0;
  for (size_t index = 0; index < param_groups.size(); ++index) {
    const Dict& param_group = param_groups[index].as_dict();
    const size_t first = partitions;
    const Value* params = param_group.find("params");
    partitions += params == nullptr ? 1 : params->as_sequence().size();
    for (size_t of_group = first; of_group < std::min(partitions, groups.size()); ++of_group) {
      groups[of_group].param_group = index;
      for (const auto& [name, option] : param_group.items()) {
        if (name.as_string() != "params") groups[of_group].options[name.as_string()] = json_of_value(option);
      }
    }
  }
  if (partitions != groups.size()) {
    raise<CheckpointError>("param_groups of ", partitions, " partitions, expected ", groups.size());
  }
  for (size_t index = 0; index < groups.size(); ++index) {
    const Value* slice = state.find(int64_t(index));
    if (slice == nullptr) continue;
    for (const auto& [name, item] : slice->as_dict().items()) {
      if (name.as_string() == "step") {
        groups[index].step = item.as_int();
      } else if (const auto* tensor = tensor_entry(name.as_string(), item)) {
        groups[index].tensors.emplace_back(name.as_string(), *tensor);
      } else if (const auto* by_parameter = item.get_if<Dict>()) {
        for (const auto& [parameter, number] : by_parameter->items())
          groups[index].numbers[name.as_string()][parameter.as_string()] = number.as_double();
      }
    }
  }
}

int parse_stage(const Dict& states) {
  const Value* stage = states.find(kStage);
  if (stage == nullptr) {
    raise<CheckpointError>("the key 'zero_stage' is missing: not a file of ZeRO stage 1, 2 or 3");
  }
  const int64_t number = number_of_stage(*stage);
  if (number < 1 || number > 3) raise<CheckpointError>("'zero_stage' is ", number, ", expected 1 to 3");
  return int(number);
}

/// Returns one number per group, from a list or from a common number. Throws CheckpointError, naming `key`,
/// for a list of another length.
std::vector<int64_t> numbers_of(const Value& value, size_t num_groups, const char* key) {
  if (value.get_if<List>() == nullptr) return std::vector<int64_t>(num_groups, value.as_int());
  std::vector<int64_t> numbers = value.as_size();
  if (numbers.size() != num_groups) {
    raise<CheckpointError>("'", key, "' has ", numbers.size(), " entries, expected ", num_groups);
  }
  return numbers;
}

}  // namespace

namespace {

Dict build_sharded(const ZeroOptimizerStates& states) {
  List flat_groups;
  for (const PartitionStates& group : states.groups) flat_groups.emplace_back(group.fp32);
  return {
      {kStage, build_stage(3)},
      {"loss_scaler", build_loss_scaler(states.loss_scaler)},
      {"dynamic_loss_scale", states.loss_scaler.dynamic},
      {"overflow", states.overflow},
      {"partition_count", states.groups.empty() ? int64_t(1) : states.groups[0].partition_count},
      {kShardedBaseState, build_base_state(states)},
      {kShardedPartitions, flat_groups},
  };
}

Dict build_partitioned(const ZeroOptimizerStates& states) {
  List partitions;
  List paddings;
  List counts;
  List mappings;
  for (const PartitionStates& group : states.groups) {
    partitions.emplace_back(group.fp32);
    paddings.emplace_back(group.padding);
    counts.emplace_back(group.partition_count);
    mappings.emplace_back(build_fragments(group));
  }
  return {
      {"loss_scaler", build_loss_scaler(states.loss_scaler)},
      {"dynamic_loss_scale", states.loss_scaler.dynamic},
      {"overflow", states.overflow},
      {"clip_grad", states.clip_grad},
      {"base_optimizer_state", build_base_state(states)},
      {kPartitions, partitions},
      {kStage, build_stage(states.zero_stage)},
      {"group_paddings", paddings},
      {"partition_count", counts},
      {"ds_version", states.ds_version},
      {"param_slice_mappings", mappings},
  };
}

}  // namespace

Value build_optimizer_states(const ZeroOptimizerStates& states) {
  return Dict{
      {"optimizer_state_dict", states.zero_stage == 3 ? build_sharded(states) : build_partitioned(states)},
      {"ds_config", value_of_json(states.ds_config)},
      {"ds_version", states.ds_version}};
}

bool is_of_bf16_optimizer(const Value& optimizer) {
  const Dict* dict = optimizer.get_if<Dict>();
  return dict != nullptr && dict->find(kPartitions) != nullptr && dict->find(kStage) == nullptr;
}

ZeroOptimizerStates parse_partitions(const Value& value) {
  const Value& optimizer = value.as_dict().at("optimizer_state_dict");
  const Dict& zero = optimizer.as_dict();
  ZeroOptimizerStates states;
  states.is_of_bf16_optimizer = is_of_bf16_optimizer(optimizer);
  states.zero_stage = states.is_of_bf16_optimizer ? 1 : parse_stage(zero);
  const char* key = states.zero_stage == 3 ? kShardedPartitions : kPartitions;
  const std::vector<Value>& partitions = zero.at(key).as_sequence();
  const auto counts = numbers_of(zero.at("partition_count"), partitions.size(), "partition_count");
  for (size_t index = 0; index < partitions.size(); ++index) {
    const at::Tensor& fp32 = partitions[index].as_tensor();
    if (fp32.dim() != 1 || counts[index] < 1) {
      raise<CheckpointError>("group ", index, " has a partition of ", fp32.dim(),
                             " dimensions and a partition_count of ", counts[index],
                             ", expected 1 and at least 1");
    }
    PartitionStates group;
    group.fp32 = fp32;
    group.partition_count = counts[index];
    states.groups.push_back(std::move(group));
  }
  const size_t num_groups = states.groups.size();
  if (const Value* paddings = zero.find("group_paddings");
      paddings != nullptr && !states.is_of_bf16_optimizer) {
    const auto numbers = numbers_of(*paddings, num_groups, "group_paddings");
    for (size_t index = 0; index < num_groups; ++index) states.groups[index].padding = numbers[index];
  }
  if (const Value* mappings = zero.find("param_slice_mappings");
      mappings != nullptr && !mappings->is_none()) {
    const std::vector<Value>& groups = mappings->as_sequence();
    if (groups.size() != num_groups) raise<CheckpointError>("'param_slice_mappings' misses groups");
    for (size_t index = 0; index < num_groups; ++index) parse_fragments(groups[index], states.groups[index]);
  }
  return states;
}

ZeroOptimizerStates parse_optimizer_states(const Value& value) {
  ZeroOptimizerStates states = parse_partitions(value);
  const Dict& file = value.as_dict();
  const Dict& zero = file.at("optimizer_state_dict").as_dict();
  if (!states.is_of_bf16_optimizer) states.loss_scaler = parse_loss_scaler(zero.at("loss_scaler"));
  if (const Value* overflow = zero.find("overflow")) states.overflow = overflow->as_bool();
  if (const Value* clip_grad = zero.find("clip_grad")) states.clip_grad = clip_grad->as_double();
  parse_base_state(zero.at(states.zero_stage == 3 ? kShardedBaseState : "base_optimizer_state"),
                   states.groups);
  if (const Value* config = file.find("ds_config"); config != nullptr)
    states.ds_config = json_of_value(*config);
  if (const Value* version = zero.find("ds_version")) states.ds_version = version->as_string();
  return states;
}

}  // namespace deepspeed::checkpoint
