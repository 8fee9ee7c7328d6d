#include "deepspeed/engine/assembly/param_groups.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <torch/optim/optimizer.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/assembly/zero_choices.h"
#include "deepspeed/optim/algorithms/muon.h"
#include "deepspeed/optim/factory.h"
#include "deepspeed/optim/slices/hyperparameters_json.h"

namespace deepspeed {
namespace {

using Names = std::unordered_map<const at::TensorImpl*, std::string>;

// Returns the trainable ones among `tensors`, with their names.
std::vector<NamedTensor> named(const std::vector<at::Tensor>& tensors, const Names& names, size_t group) {
  std::vector<NamedTensor> result;
  for (size_t index = 0; index < tensors.size(); ++index) {
    const auto entry = names.find(tensors[index].unsafeGetTensorImpl());
    if (entry == names.end()) {
      raise<UsageError>("parameter ", index, " of parameter group ", group,
                        " is not a parameter of the model");
    }
    if (tensors[index].requires_grad()) result.push_back({entry->second, tensors[index]});
  }
  return result;
}

void add_group(OptimizerGroups& groups, std::vector<NamedTensor> params, optim::ParamGroup options,
               size_t given) {
  if (params.empty()) return;
  for (const NamedTensor& param : params) options.param_names.push_back(param.name);
  groups.tensors.push_back(std::move(params));
  groups.options.push_back(std::move(options));
  groups.given.push_back(given);
}

// Splits each group without `use_muon` into matrices and other parameters. Each part then has only the state
// and the learning rate of its kind.
OptimizerGroups split_for_muon(OptimizerGroups groups) {
  OptimizerGroups result;
  for (size_t index = 0; index < groups.tensors.size(); ++index) {
    optim::ParamGroup& given = groups.options[index];
    given.param_names.clear();
    if (given.options.contains("use_muon")) {
      add_group(result, std::move(groups.tensors[index]), std::move(given), groups.given[index]);
      continue;
    }
    std::vector<NamedTensor> matrices, others;
    for (NamedTensor& param : groups.tensors[index]) {
      const bool is_matrix = optim::uses_muon(param.name, param.tensor.dim());
      (is_matrix ? matrices : others).push_back(std::move(param));
    }
    for (auto* params : {&matrices, &others}) {
      optim::ParamGroup options = given;
      options.options.set("use_muon", params == &matrices);
      add_group(result, std::move(*params), std::move(options), groups.given[index]);
    }
  }
  return result;
}

// Splits off the fp64 parameters and keeps the order; empty parts are dropped.
template <class Param, class TensorOf>
std::vector<std::vector<Param>> split_by_dtype(const std::vector<Param>& params, const TensorOf& tensor_of) {
  std::vector<std::vector<Param>> parts(2);
  for (const Param& param : params)
    parts[tensor_of(param).scalar_type() == at::kDouble ? 1 : 0].push_back(param);
  std::erase_if(parts, [](const auto& part) { return part.empty(); });
  return parts;
}

// A flat buffer has one dtype, so a group of fp32 and fp64 parameters becomes two.
OptimizerGroups split_by_dtype(OptimizerGroups groups) {
  OptimizerGroups result;
  for (size_t index = 0; index < groups.tensors.size(); ++index) {
    optim::ParamGroup& given = groups.options[index];
    given.param_names.clear();
    const auto tensor_of = [](const NamedTensor& param) { return param.tensor; };
    for (auto& part : split_by_dtype(groups.tensors[index], tensor_of))
      add_group(result, std::move(part), given, groups.given[index]);
  }
  return result;
}

// Arranges a torch optimizer's groups as the engine does: drops those that train nothing, and splits off fp64
// parameters. The group numbers then agree.
void arrange_groups(torch::optim::Optimizer& client, bool may_have_doubles) {
  std::vector<torch::optim::OptimizerParamGroup> result;
  for (const auto& group : client.param_groups()) {
    const auto trains = [](const at::Tensor& param) { return param.requires_grad(); };
    if (std::ranges::none_of(group.params(), trains)) continue;
    std::vector<std::vector<at::Tensor>> parts = {group.params()};
    if (may_have_doubles)
      parts = split_by_dtype(group.params(), [](const at::Tensor& param) { return param; });
    for (auto& part : parts) result.emplace_back(std::move(part), group.options().clone());
  }
  if (result.size() != client.param_groups().size()) client.param_groups() = std::move(result);
}

}  // namespace

OptimizerGroups make_param_groups(const EngineModel& model, const config::DeepSpeedConfig& config,
                                  const InitializeOptions& options, torch::optim::Optimizer* client) {
  OptimizerGroups groups;
  if (client == nullptr && !options.slice_optimizer && !config.optimizer) return groups;
  Names names;
  std::vector<at::Tensor> all;
  for (const NamedTensor& param : model.parameters) {
    names.emplace(param.tensor.unsafeGetTensorImpl(), param.name);
    all.push_back(param.tensor);
  }
  const bool may_have_doubles = model_dtype(config) == at::kFloat;
  if (client != nullptr) {
    arrange_groups(*client, may_have_doubles);
    const auto& given = client->param_groups();
    for (size_t index = 0; index < given.size(); ++index) {
      add_group(groups, named(given[index].params(), names, index), {}, index);
    }
  } else if (!options.model_parameters.empty()) {
    for (size_t index = 0; index < options.model_parameters.size(); ++index) {
      const ModelParameters& given = options.model_parameters[index];
      optim::ParamGroup group;
      set_from_json(group.options, given.options, message("model_parameters[", index, "].options"));
      add_group(groups, named(given.params, names, index), std::move(group), index);
    }
  } else {
    add_group(groups, named(all, names, 0), {}, 0);
  }
  const bool is_own = client != nullptr || options.slice_optimizer;
  if (!is_own && optim::is_muon(config.optimizer->type)) groups = split_for_muon(std::move(groups));
  if (may_have_doubles) groups = split_by_dtype(std::move(groups));
  if (groups.tensors.empty()) raise<UsageError>("no parameter of the model needs a gradient");
  return groups;
}

}  // namespace deepspeed
