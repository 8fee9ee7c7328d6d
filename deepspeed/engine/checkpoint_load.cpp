#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/layout.h"
#include "deepspeed/checkpoint/run_state.h"
#include "deepspeed/checkpoint/torch_archive.h"
#include "deepspeed/device/rng.h"
#include "deepspeed/engine/checkpoint_io.h"
#include "deepspeed/engine/hyperparameters_json.h"

namespace deepspeed {
namespace {

namespace fs = std::filesystem;
constexpr const char* kCheckpointLoadWhere = "checkpoint";

// The first few of a list of names, for messages.
std::string some(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 5); ++i)
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  if (names.size() > 5) text += message(" and ", names.size() - 5, " more");
  return text;
}

// Copies the part of a partition of the file that lies in this rank's interval.
void copy_common(const at::Tensor& destination, const Interval& owned, const at::Tensor& source,
                 int64_t source_begin) {
  const Interval common = intersect(owned, {source_begin, source_begin + source.numel()});
  if (common.empty()) return;
  destination.narrow(0, common.begin - owned.begin, common.numel())
      .copy_(source.narrow(0, common.begin - source_begin, common.numel()));
}

}  // namespace

std::string CheckpointIo::chosen_tag(const std::string& directory, const LoadOptions& options) const {
  if (!options.tag.empty()) return options.tag;
  return checkpoint::read_latest(directory).value_or("");
}

LoadResult CheckpointIo::load(const std::string& directory, const LoadOptions& options) {
  const c10::NoGradGuard no_grad;
  LoadResult result;
  const std::string tag = chosen_tag(directory, options);
  if (tag.empty()) {
    log::warning("[checkpoint] there is no `latest` in ", directory,
                 ": nothing is loaded; pass a tag to choose one");
    return result;
  }
  const fs::path path = checkpoint::model_states_path(directory, tag);
  on_all_ranks("loading", [&] {
    const checkpoint::ModelStates states =
        checkpoint::parse_model_states(checkpoint::read_torch_archive(path));
    if (options.custom_load_fn) {
      options.custom_load_fn(states.states.module);
    } else {
      load_module(states.states.module, options.load_module_strict);
    }
    zero::ZeroOptimizer* optimizer = engine_.optimizer_.get();
    if (optimizer != nullptr) {
      optimizer->zero_grad();
      engine_.backwards_since_update_ = 0;
      if (!options.load_optimizer_states || options.load_module_only) {
        optimizer->restore_masters_from_model();
      } else if (engine_.zero_optimization()) {
        load_zero_states(directory, tag);
        if (!engine_.zero_load_from_fp32_weights()) optimizer->restore_masters_from_model();
      } else if (states.optimizer.is_none()) {
        raise<CheckpointError>(
            kCheckpointLoadWhere, path.string(),
            " was saved with ZeRO and holds no optimizer state for stage 0; set "
            "zero_optimization.stage to 1 or 2, or load with load_optimizer_states = false");
      } else {
        load_plain_states(checkpoint::parse_plain_optimizer(states.optimizer));
      }
    }
    if (!options.load_module_only) {
      if (options.load_lr_scheduler_states && engine_.lr_scheduler_ && states.lr_scheduler) {
        engine_.lr_scheduler_->load_state_dict(*states.lr_scheduler);
      }
      engine_.global_steps_ = states.global_steps;
      engine_.global_samples_ = states.global_samples;
      engine_.skipped_steps_ = states.skipped_steps;
      engine_.micro_steps_ = 0;
      load_run_state(directory, tag);
    }
    result.client_state = states.client_state;
  });
  engine_.refresh_boundary();
  result.path = path.string();
  log::info("loaded checkpoint ", result.path);
  return result;
}

void CheckpointIo::load_module(const checkpoint::NamedTensors& tensors, bool strict) {
  std::unordered_map<std::string, at::Tensor> own;
  for (const zero::NamedTensor& param : engine_.model_.parameters)
    own.emplace(param.name, param.tensor.detach());
  for (const zero::NamedTensor& buffer : engine_.model_.buffers)
    own.emplace(buffer.name, buffer.tensor.detach());
  std::unordered_set<std::string> aliases, seen;
  for (const auto& [alias, owner] : engine_.model_.shared_parameters) aliases.insert(alias);

  std::vector<std::string> unexpected, missing;
  for (const auto& [name, tensor] : tensors) {
    if (aliases.count(name) != 0) continue;  // stored under the first name as well
    const auto entry = own.find(name);
    if (entry == own.end()) {
      unexpected.push_back(name);
      continue;
    }
    if (entry->second.sizes() != tensor.sizes()) {
      raise<CheckpointError>(kCheckpointLoadWhere, "'", name, "' has sizes ", tensor.sizes(),
                             " in the file, the model's has ", entry->second.sizes());
    }
    entry->second.copy_(tensor);
    seen.insert(name);
  }
  for (const zero::NamedTensor& param : engine_.model_.parameters) {
    if (seen.count(param.name) == 0) missing.push_back(param.name);
  }
  for (const zero::NamedTensor& buffer : engine_.model_.buffers) {
    if (seen.count(buffer.name) == 0) missing.push_back(buffer.name);
  }
  if (!strict || (missing.empty() && unexpected.empty())) return;
  raise<CheckpointError>(
      kCheckpointLoadWhere,
      "the file does not fit the model:", missing.empty() ? std::string() : " it lacks " + some(missing),
      unexpected.empty() ? std::string() : " it has, beyond the model, " + some(unexpected),
      "; load_module_strict = false loads what fits");
}

void CheckpointIo::load_zero_states(const std::string& directory, const std::string& tag) {
  zero::ZeroOptimizer& optimizer = *engine_.optimizer_;
  const auto files = checkpoint::find_optim_states(directory, tag);
  if (files.empty()) {
    raise<CheckpointError>(kCheckpointLoadWhere, directory, "/", tag,
                           " holds no ZeRO optimizer states (it was saved at stage 0); set "
                           "zero_optimization.stage to 0, or load with load_optimizer_states = false");
  }
  const size_t num_groups = optimizer.store().groups().size();
  std::vector<optim::SliceState> slices(num_groups);
  // The files' partitions are of the same flat space whatever their number: each rank copies what falls into
  // its own.
  bool scaler_loaded = false;
  for (const auto& file : files) {
    const auto states = checkpoint::parse_optimizer_states(checkpoint::read_torch_archive(file.path));
    if (states.groups.size() != num_groups) {
      raise<CheckpointError>(kCheckpointLoadWhere, file.path.string(), " has ", states.groups.size(),
                             " parameter groups, the optimizer has ", num_groups);
    }
    if (!std::exchange(scaler_loaded, true)) load_scaler(states.loss_scaler);
    for (size_t index = 0; index < num_groups; ++index) {
      const auto& group = states.groups[index];
      const zero::FlatLayout& layout = optimizer.store().groups()[index].layout;
      if (group.partition_count != static_cast<int64_t>(files.size())) {
        raise<CheckpointError>(kCheckpointLoadWhere, directory, "/", tag, " has ", files.size(),
                               " optimizer files, expected ", group.partition_count);
      }
      const int64_t partition = group.fp32.numel() + group.padding;
      if (partition * group.partition_count < layout.numel()) {
        raise<CheckpointError>(kCheckpointLoadWhere, file.path.string(), " covers ",
                               partition * group.partition_count, " elements of parameter group ", index,
                               ", the model has ", layout.numel());
      }
      const bool same_world = group.partition_count == layout.world_size();
      if (!same_world && engine_.config_.zero_optimization.round_robin_gradients) {
        raise<CheckpointError>(
            kCheckpointLoadWhere,
            "with zero_optimization.round_robin_gradients the order of parameters depends on "
            "the number of ranks: resume on ",
            group.partition_count, " ranks");
      }
      const Interval owned = optimizer.owned(index);
      const int64_t begin = file.dp_rank * partition;
      copy_common(optimizer.master(index), owned, group.fp32, begin);
      for (const auto& [name, tensor] : group.tensors) {
        if (tensor.numel() != partition) {
          raise<CheckpointError>(kCheckpointLoadWhere, "state '", name, "' of parameter group ", index,
                                 " in ", file.path.string(), " has ", tensor.numel(), " elements, expected ",
                                 partition, "; load with load_optimizer_states = false");
        }
        auto& tensors = slices[index].tensors;
        auto entry =
            std::find_if(tensors.begin(), tensors.end(), [&](const auto& one) { return one.first == name; });
        if (entry == tensors.end()) {
          tensors.emplace_back(name, at::zeros({owned.numel()}, tensor.options()));
          entry = std::prev(tensors.end());
        }
        copy_common(entry->second, owned, tensor, begin);
      }
      if (group.step) slices[index].step = *group.step;
      load_group_options(index, group.options);
    }
  }
  for (size_t index = 0; index < num_groups; ++index) {
    if (!slices[index].tensors.empty() || slices[index].step > 0) {
      optimizer.base_optimizer().load_state(index, slices[index]);
    }
  }
}

void CheckpointIo::load_plain_states(const checkpoint::PlainOptimizerStates& states) {
  zero::ZeroOptimizer& optimizer = *engine_.optimizer_;
  const auto& groups = optimizer.store().groups();
  if (states.groups.size() != groups.size()) {
    raise<CheckpointError>(kCheckpointLoadWhere, "the file has ", states.groups.size(),
                           " parameter groups, the optimizer has ", groups.size());
  }
  if (states.loss_scaler) load_scaler(*states.loss_scaler);
  for (size_t index = 0; index < groups.size(); ++index) {
    const auto& group = states.groups[index];
    if (group.params.size() != groups[index].params.size()) {
      raise<CheckpointError>(kCheckpointLoadWhere, "parameter group ", index, " of the file has ",
                             group.params.size(), " parameters, the optimizer's has ",
                             groups[index].params.size());
    }
    optim::SliceState slice;
    const int64_t padded = groups[index].layout.padded_numel();
    for (size_t param = 0; param < group.params.size(); ++param) {
      const Interval place = groups[index].layout.place(param);
      slice.step = std::max(slice.step, group.params[param].step);
      for (const auto& [name, tensor] : group.params[param].tensors) {
        if (tensor.numel() != place.numel()) {
          raise<CheckpointError>(kCheckpointLoadWhere, "state '", name, "' of '",
                                 groups[index].params[param].name, "' has ", tensor.numel(),
                                 " elements, the parameter has ", place.numel());
        }
        auto entry = std::find_if(slice.tensors.begin(), slice.tensors.end(),
                                  [&](const auto& one) { return one.first == name; });
        if (entry == slice.tensors.end()) {
          slice.tensors.emplace_back(name, at::zeros({padded}, tensor.options()));
          entry = std::prev(slice.tensors.end());
        }
        entry->second.narrow(0, place.begin, place.numel()).copy_(tensor.reshape({-1}));
      }
    }
    if (!slice.tensors.empty() || slice.step > 0) optimizer.base_optimizer().load_state(index, slice);
    load_group_options(index, group.options);
    if (!optimizer.has_master_weights()) continue;
    if (group.fp32_flat.defined()) {
      copy_common(optimizer.master(index), optimizer.owned(index), group.fp32_flat.reshape({-1}), 0);
    } else {
      optimizer.restore_masters_from_model();
    }
  }
}

void CheckpointIo::load_scaler(const checkpoint::LossScalerStates& states) {
  auto* dynamic = dynamic_cast<precision::DynamicLossScaler*>(&engine_.optimizer_->loss_scaler());
  if (dynamic == nullptr || !states.dynamic) return;  // a constant scale follows from the config
  dynamic->set_state({states.cur_scale, states.cur_iter, states.last_overflow_iter, states.cur_hysteresis});
}

void CheckpointIo::load_group_options(size_t group, const Json& options) {
  auto& own = engine_.optimizer_->param_groups()[group].options;
  Json known = Json::object();
  for (const auto& [key, value] : options.items()) {
    if (own.contains(key)) known[key] = value;
  }
  set_from_json(own, known, message("param_groups[", group, "]"));
}

void CheckpointIo::load_run_state(const std::string& directory, const std::string& tag) {
  fs::path path = checkpoint::rng_states_path(directory, tag, engine_.rank());
  const bool own = fs::exists(path);
  if (!own) path = checkpoint::rng_states_path(directory, tag, 0);
  if (!fs::exists(path)) return;  // written by DeepSpeed itself
  const checkpoint::RunState state = checkpoint::parse_run_state(checkpoint::read_torch_archive(path));
  if (own) {
    device::set_cpu_rng_state(state.cpu_rng);
    if (state.cuda_rng.defined()) device::set_cuda_rng_state(state.cuda_rng);
  }
  if (engine_.loader_position_ && state.loader) {
    LoaderPosition& position = *engine_.loader_position_;
    position = {state.loader->seed, state.loader->epoch, state.loader->samples_consumed,
                state.loader->epoch_ended,
                /*resume=*/!state.loader->epoch_ended};
  }
}

}  // namespace deepspeed
