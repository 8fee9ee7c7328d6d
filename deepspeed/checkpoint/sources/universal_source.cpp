// Presents a checkpoint of any stage by parameter, for convert_to_universal().
//
// The constructor compares the folder with its manifest and opens the model file. If that contains an
// optimizer, the checkpoint is of stage 0 (open_plain_optimizer); otherwise there are partitions
// (open_partitions). At stage 3 the model file has only placeholders, and Fp32Source finds the module's
// weights. load() returns one whole state of one parameter. model_file() and optimizer_state() return what
// belongs to no parameter. Their large tensors stay deferred until load_of_model() reads them to be written.
#include "deepspeed/checkpoint/sources/universal_source.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include <ATen/ops/empty.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/content/optimizer_states.h"
#include "deepspeed/checkpoint/content/plain_optimizer.h"
#include "deepspeed/checkpoint/tag/layout.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kInfo = "universal_checkpoint_info";
constexpr double kInfoVersion = 0.4;  // of DeepSpeed 0.19.6
using std::filesystem::path;

std::shared_ptr<const TagArchives> checked_archives(const path& folder, const TagArchives::Options& options) {
  if (is_universal(folder))
    raise<UsageError>(folder,
                      " is a universal checkpoint already; checkpoint.load_universal = true loads it");
  auto archives = std::make_shared<const TagArchives>(folder, options);
  if (const auto damage = find_damage(folder, archives->manifest())) raise<CheckpointError>(*damage);
  return archives;
}

}  // namespace

UniversalSource::UniversalSource(const path& tag_folder, const TagArchives::Options& options)
    : folder_(tag_folder), archives_(checked_archives(tag_folder, options)) {
  const path dir = folder_.parent_path();
  const std::string tag = folder_.filename();
  if (const size_t slices = find_slices(dir, tag).size(); slices > 0) {
    raise<NotSupportedError>(
        folder_, " is of ", slices,
        " model-parallel ranks, which have cut layers, and a universal checkpoint has ",
        "whole ones; load_checkpoint() resumes from it at as many ranks, and zero_to_fp32 ",
        "gives the weights of each part");
  }
  for (const ModelStatesFile& file : require_model_states(dir, tag)) {
    auto archive = archives_->open(file.path);
    stages_.push_back({archive, parse_model_states(archive->value())});
  }
  const bool is_pipeline = !find_layer_states(dir, tag).empty();
  if (!is_pipeline) module_ = by_name(stages_.front().states.states.module);
  if (is_pipeline || !find_sharded_model_states(dir, tag).empty())
    whole_.emplace(dir, tag, Fp32Source::Options{}, archives_);
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const bool is_plain = !stages_[stage].states.optimizer.is_none();
    add_groups(is_plain ? open_plain_optimizer(stages_[stage]) : open_partitions(stage));
  }
}

void UniversalSource::join(OptimizerFiles files) {
  if (optimizer_) {
    optimizer_->join(std::move(files));
  } else {
    optimizer_ = std::move(files);
  }
}

/// Returns a weight of the module as a meta tensor. Undefined if the module has none of that name.
at::Tensor UniversalSource::weight(const std::string& name) const {
  if (const auto found = module_.find(name); found != module_.end()) return found->second;
  if (!whole_) return {};
  const auto found = std::ranges::find(whole_->weights(), name, &NamedTensor::name);
  return found == whole_->weights().end() ? at::Tensor() : found->tensor;
}

std::vector<NamedShapes> UniversalSource::open_partitions(size_t stage) {
  const path dir = folder_.parent_path();
  const auto& shapes = stages_[stage].states.states.param_shapes;
  const bool has_files = !find_optim_states(dir, folder_.filename(), int(stage)).empty();
  if (has_files && !shapes) {
    raise<CheckpointError>(
        stages_[stage].file->path(),
        " has no 'param_shapes', which say what the optimizer files hold, as of DeepSpeed's bf16 pipelines "
        "at stage 0; load it with load_checkpoint() and save it again, which notes them");
  }
  if (!has_files) {
    raise<CheckpointError>(folder_, " holds no optimizer states: the file ",
                           optim_states_path(dir, folder_.filename(), 0, int(stage)),
                           " (or that of bf16) is missing");
  }
  join(OptimizerFiles::of_partitions(dir, folder_.filename(), *archives_, shapes, int(stage)));
  return *shapes;
}

std::vector<NamedShapes> UniversalSource::open_plain_optimizer(const Stage& stage) {
  std::vector<NamedShapes> params = params_of_plain_optimizer(stage);
  join(OptimizerFiles::of_model_file(stage.file, stage.states.optimizer, params));
  return params;
}

std::vector<NamedShapes> UniversalSource::params_of_plain_optimizer(const Stage& stage) const {
  const PlainOptimizerStates plain = parse_plain_optimizer(stage.states.optimizer);
  std::vector<NamedShapes> params;
  bool complete = true;
  for (const PlainGroupStates& group : plain.groups) {
    NamedShapes& of_group = params.emplace_back();
    complete = complete && !group.names.empty();
    for (const std::string& name : group.names) {
      const at::Tensor found = weight(name);
      if (!found.defined()) raise<CheckpointError>(stage.file->path(), " has no weights of '", name, "'");
      of_group.emplace_back(name, found.sizes().vec());
    }
  }
  if (complete) return params;
  // DeepSpeed's file does not name the parameters. If the optimizer has one group, with as many parameters as
  // the model, these are the model's.
  std::unordered_set<std::string> others(stage.states.states.buffer_names.begin(),
                                         stage.states.states.buffer_names.end());
  for (const auto& [alias, owner] : stage.states.states.shared_params) others.insert(alias);
  NamedShapes all;
  int64_t numel = 0;
  for (const auto& [name, tensor] : stage.states.states.module) {
    if (others.contains(name)) continue;
    all.emplace_back(name, tensor.sizes().vec());
    numel += tensor.numel();
  }
  const PlainGroupStates* only = plain.groups.size() == 1 ? &plain.groups[0] : nullptr;
  const bool has_all = only != nullptr && (only->fp32_flat.defined() ? only->fp32_flat.numel() == numel
                                                                     : only->params.size() == all.size());
  if (has_all) return {all};
  raise<CheckpointError>(
      stage.file->path(),
      " does not say which parameters its optimizer has ('param_names'), and they are not all in one group; "
      "load it with load_checkpoint() and save it again, which notes them");
}

void UniversalSource::add_groups(const std::vector<NamedShapes>& groups) {
  for (size_t group = 0; group < groups.size(); ++group) {
    for (const auto& [name, sizes] : groups[group]) {
      const bool is_known = std::ranges::find(parameters_, name, &Parameter::name) != parameters_.end();
      if (!is_known) parameters_.push_back({name, sizes, group});  // otherwise tied to that of another stage
    }
  }
}

at::ScalarType UniversalSource::master_dtype(const Parameter& parameter) const {
  if (optimizer_->numel(parameter.name, kMasterState) > 0) return optimizer_->master_dtype(parameter.name);
  const auto found = module_.find(parameter.name);
  const bool is_double = found != module_.end() && found->second.scalar_type() == at::kDouble;
  return is_double ? at::kDouble : at::kFloat;
}

std::vector<std::pair<std::string, at::ScalarType>> UniversalSource::states(
    const Parameter& parameter) const {
  std::vector<std::pair<std::string, at::ScalarType>> states{{kMasterState, master_dtype(parameter)}};
  const auto& others = optimizer_->groups()[parameter.group].states;
  states.insert(states.end(), others.begin(), others.end());
  return states;
}

at::Tensor UniversalSource::load(const Parameter& parameter, const std::string& state) const {
  const bool is_master = state == kMasterState;
  // Without masters, the optimizer updates the model's own weights.
  if (is_master && optimizer_->numel(parameter.name, state) == 0)
    return whole_ ? whole_->load(weight(parameter.name))
                  : stages_.front()
                        .file->load(module_.at(parameter.name))
                        .to(master_dtype(parameter))
                        .contiguous();
  at::ScalarType type = at::kFloat;
  for (const auto& [name, its_type] : states(parameter)) {
    if (name == state) type = its_type;
  }
  const at::Tensor whole = at::empty(parameter.sizes, at::TensorOptions().dtype(type));
  optimizer_->read(parameter.name, state, {0, whole.numel()}, whole.view({-1}));
  return whole;
}

Dict UniversalSource::model_file(size_t stage) const {
  Dict file = stages_[stage].file->value().as_dict();
  file.set("optimizer", None{});
  if (!file.at("module").is_none() && whole_) {
    file.set("module", whole_module(file.at("module").as_dict()));
    file.set("frozen_param_fragments", None{});
    file.set("frozen_param_shapes", None{});
  }
  if (const Value* info = file.find(kInfo); info == nullptr || info->is_none())
    file.set(kInfo, Dict{{"universal_checkpoint_version", kInfoVersion}});
  return file;
}

/// Returns `module` with stage 3's placeholders replaced by whole deferred weights of the same dtypes.
Dict UniversalSource::whole_module(const Dict& module) const {
  Dict result(/*ordered=*/true);
  const auto weights = by_name(whole_->weights());
  std::unordered_map<const void*, at::Tensor> made;  // aliases share their tensor
  for (const auto& [name, value] : module.items()) {
    const auto weight = weights.find(name.as_string());
    const auto* placeholder = value.get_if<at::Tensor>();
    if (weight == weights.end() || placeholder == nullptr || placeholder->numel() > 0) {
      result.set(name, value);
      continue;
    }
    at::Tensor& deferred = made[weight->second.unsafeGetTensorImpl()];
    if (!deferred.defined()) {
      deferred = at::empty(weight->second.sizes(),
                           at::TensorOptions().dtype(placeholder->scalar_type()).device(at::kMeta));
      of_whole_[deferred.storage().unsafeGetStorageImpl()] = {deferred, weight->second};
    }
    result.set(name, deferred);
  }
  return result;
}

at::Tensor UniversalSource::load_of_model(const at::Tensor& deferred, size_t stage) const {
  const auto whole = of_whole_.find(deferred.storage().unsafeGetStorageImpl());
  if (whole == of_whole_.end()) return stages_[stage].file->load(deferred);
  return whole_->load(whole->second.second).to(deferred.scalar_type());
}

Dict UniversalSource::optimizer_state() const {
  Dict common =
      stages_.front().states.optimizer.is_none() ? common_of_partitions() : common_of_plain_optimizer();
  ParameterNumbers numbers;
  for (const OptimizerFiles::Group& group : optimizer_->groups()) {
    for (const auto& [name, by_parameter] : group.numbers)
      numbers[name].insert(by_parameter.begin(), by_parameter.end());
  }
  if (!numbers.empty()) common.set(kParameterNumbers, build_parameter_numbers(numbers));
  return common;
}

namespace {

/// Returns `states` without the entries whose content is in the parameters' own files.
Dict without_sharded(const Dict& states) {
  constexpr auto kSharded = std::to_array<std::string_view>({"base_optimizer_state", "param_slice_mappings",
                                                             "single_partition_of_fp32_groups",
                                                             "optimizer_state_dict", "fp32_flat_groups"});
  Dict rest;
  for (const auto& [key, value] : states.items()) {
    if (std::ranges::find(kSharded, key.as_string()) == kSharded.end()) rest.items().emplace_back(key, value);
  }
  return rest;
}

}  // namespace

Dict UniversalSource::common_of_partitions() const {
  const path first = find_optim_states(folder_.parent_path(), folder_.filename()).front().path;
  const auto file = archives_->open(first);
  const Dict& states = file->value().as_dict().at("optimizer_state_dict").as_dict();
  Dict common = without_sharded(states);
  const bool is_sharded = states.find("optimizer_state_dict") != nullptr;
  const char* base = is_sharded ? "optimizer_state_dict" : "base_optimizer_state";
  common.set("param_groups", states.at(base).as_dict().at("param_groups"));
  return file->load(common).as_dict();
}

Dict UniversalSource::common_of_plain_optimizer() const {
  const ModelStates& first = stages_.front().states;
  const PlainOptimizerStates plain = parse_plain_optimizer(first.optimizer);
  ZeroOptimizerStates zero;
  zero.zero_stage = 0;
  if (plain.loss_scaler) zero.loss_scaler = *plain.loss_scaler;
  zero.clip_grad = plain.clip_grad;
  zero.ds_version = first.states.ds_version;
  const Value built = build_optimizer_states(zero);
  Dict common = without_sharded(built.as_dict().at("optimizer_state_dict").as_dict());
  const Dict& optimizer = first.optimizer.as_dict();
  const Value* wrapped = optimizer.find("optimizer_state_dict");
  const Dict& state_dict = wrapped == nullptr ? optimizer : wrapped->as_dict();
  common.set("param_groups", state_dict.at("param_groups"));
  return stages_.front().file->load(common).as_dict();
}

}  // namespace deepspeed::checkpoint
