#include <filesystem>
#include <unordered_set>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/layout.h"
#include "deepspeed/checkpoint/misfit_error.h"
#include "deepspeed/checkpoint/run_state.h"
#include "deepspeed/checkpoint/tag_folder.h"
#include "deepspeed/checkpoint/torch_archive.h"
#include "deepspeed/device/rng.h"
#include "deepspeed/engine/checkpoint_io.h"
#include "deepspeed/engine/hyperparameters_json.h"

namespace deepspeed {
namespace {

namespace fs = std::filesystem;
constexpr const char* kCheckpointLoadWhere = "checkpoint";

// What lies between the parameters, and behind them.
void zero_padding(const at::Tensor& flat, const std::vector<zero::ParamPiece>& pieces) {
  int64_t end = 0;
  for (const zero::ParamPiece& piece : pieces) {
    if (piece.in_interval.begin > end) flat.narrow(0, end, piece.in_interval.begin - end).zero_();
    end = piece.in_interval.end;
  }
  flat.narrow(0, end, flat.numel() - end).zero_();
}

// What else can be loaded, for messages.
std::string other_tags(const std::string& directory, const std::string& tag) {
  for (const std::string& other : checkpoint::find_complete_tags(directory)) {
    if (other != tag) return "; the newest other tag that is complete is '" + other + "'";
  }
  return "";
}

}  // namespace

std::string CheckpointIo::chosen_tag(const std::string& directory, const LoadOptions& options) const {
  if (!options.tag.empty()) return options.tag;
  if (!engine_.load_universal_checkpoint()) return checkpoint::read_latest(directory).value_or("");
  if (const auto tag = checkpoint::read_latest_universal(directory)) return *tag;
  raise<CheckpointError>(kCheckpointLoadWhere, "there is no ", checkpoint::latest_universal_path(directory),
                         ", which checkpoint.load_universal needs; ds_to_universal makes a universal "
                         "checkpoint of another");
}

LoadResult CheckpointIo::load(const std::string& directory, const LoadOptions& options) {
  const c10::NoGradGuard no_grad;
  engine_.wait_for_checkpoint();
  LoadResult result;
  const std::string tag = chosen_tag(directory, options);
  if (tag.empty()) {
    const std::vector<std::string> complete = checkpoint::find_complete_tags(directory);
    log::warning("[checkpoint] there is no `latest` in ", directory,
                 ": nothing is loaded; pass a tag to choose one",
                 complete.empty() ? "" : message(": the newest complete one is '", complete.front(), "'"));
    return result;
  }
  on_all_ranks("loading", [&] {
    if (engine_.local_rank() == 0) checkpoint::recover_tag(directory, tag);
  });
  on_all_ranks("loading", [&] {
    try {
      load_files(directory, tag, options, result);
    } catch (const checkpoint::MisfitError&) {
      throw;  // another tag of this training fits no better
    } catch (const CheckpointError& error) {
      if (engine_.load_universal_checkpoint()) throw;
      throw CheckpointError(error.what() + other_tags(directory, tag));
    }
  });
  // It may come from another precision, or from stage 3, whose files hold masters alone: the model's weights
  // follow the masters. At stage 3 in fp32 they are the shards. Halves of masters are those of this rank
  // alone. In fp32 weights that this rank has masters of came with these, which may lie beside them.
  const bool is_sharded = !checkpoint::find_sharded_model_states(directory, tag).empty();
  const bool is_universal = engine_.load_universal_checkpoint() && engine_.zero_load_from_fp32_weights();
  const auto follow_masters = [&] {
    const zero::ZeroOptimizer& optimizer = *engine_.optimizer_;
    return is_sharded || is_universal || engine_.pool_ || optimizer.has_split_masters() ||
           (engine_.zero_optimization() && optimizer.store().dtype() == at::kFloat);
  };
  if (loads_optimizer(options) && follow_masters()) engine_.optimizer_->publish_masters();
  engine_.refresh_boundary();
  log::info("loaded checkpoint ", result.path);
  return result;
}

bool CheckpointIo::loads_optimizer(const LoadOptions& options) const {
  return engine_.optimizer_ != nullptr && options.load_optimizer_states && !options.load_module_only;
}

void CheckpointIo::load_files(const std::string& directory, const std::string& tag,
                              const LoadOptions& options, LoadResult& result) {
  const std::vector<fs::path> sharded = checkpoint::find_sharded_model_states(directory, tag);
  const fs::path path = sharded.empty() ? checkpoint::model_states_path(directory, tag) : sharded.front();
  const checkpoint::Manifest manifest = checkpoint::read_manifest(path.parent_path());
  if (const auto damage = checkpoint::find_damage(path.parent_path(), manifest))
    raise<CheckpointError>(kCheckpointLoadWhere, *damage);
  if (!fs::exists(path)) raise<CheckpointError>(kCheckpointLoadWhere, "the file ", path, " is missing");
  const auto file = std::make_shared<checkpoint::DeferredArchive>(path, manifest.sums_of(path));
  const checkpoint::ModelStates states = checkpoint::parse_model_states(file->value());
  zero::ZeroOptimizer* optimizer = engine_.optimizer_.get();
  std::optional<checkpoint::OptimizerFiles> source;
  if (loads_optimizer(options)) source = open_optimizer(directory, tag, manifest, file, states);
  std::unordered_set<std::string> in_masters;
  if (source && !options.custom_load_fn) in_masters = weights_in_masters(*source);
  StoredModule module;
  if (sharded.empty()) {
    for (const auto& [name, tensor] : states.states.module) {
      const bool in_master = in_masters.contains(name);
      module.push_back({name, tensor, in_master ? nullptr : loader_of(file, tensor)});
    }
  } else {
    module = whole_module(directory, tag, states.states, file,
                          /*has_masters=*/source.has_value() && !options.custom_load_fn);
  }
  if (optimizer != nullptr) optimizer->abandon_step();
  if (options.custom_load_fn) {
    checkpoint::NamedTensors tensors;
    for (const StoredTensor& stored : module) tensors.emplace_back(stored.name, stored.load());
    options.custom_load_fn(tensors);
  } else {
    load_module(module, options.load_module_strict);
  }
  if (optimizer != nullptr) {
    optimizer->zero_grad();
    engine_.backwards_since_update_ = 0;
    const bool reads_masters =
        engine_.zero_optimization() || engine_.load_universal_checkpoint() || !sharded.empty();
    if (source) load_optimizer(*source, reads_masters);
    const bool has_weights = sharded.empty() || !source;  // in the model's own precision
    if (!source || (has_weights && !engine_.zero_load_from_fp32_weights()))
      optimizer->restore_masters_from_model();
  }
  if (!options.load_module_only) {
    if (options.load_lr_scheduler_states && engine_.lr_scheduler_ && states.lr_scheduler) {
      engine_.lr_scheduler_->load_state_dict(*states.lr_scheduler);
    }
    engine_.global_steps_ = states.global_steps;
    engine_.global_samples_ = states.global_samples;
    engine_.skipped_steps_ = states.skipped_steps;
    engine_.micro_steps_ = 0;
    engine_.step_applied_ = states.global_steps > 0 && !(source && source->overflow());
    load_run_state(directory, tag, manifest);
  }
  result.client_state = file->load(checkpoint::Value(states.client_state)).as_dict();
  result.path = path.string();
}

checkpoint::OptimizerFiles CheckpointIo::open_optimizer(
    const std::string& directory, const std::string& tag, const checkpoint::Manifest& manifest,
    const std::shared_ptr<checkpoint::DeferredArchive>& model_file,
    const checkpoint::ModelStates& states) const {
  const fs::path folder = fs::path(directory) / tag;
  std::vector<checkpoint::NamedShapes> shapes;
  for (const zero::StoredGroup& group : engine_.optimizer_->store().groups()) {
    auto& of_group = shapes.emplace_back();
    for (const zero::NamedTensor& param : group.params)
      of_group.emplace_back(param.name, param.tensor.sizes().vec());
  }
  if (engine_.load_universal_checkpoint())
    return checkpoint::OptimizerFiles::of_universal(folder, manifest, shapes);
  if (checkpoint::is_universal(folder)) {
    raise<CheckpointError>(kCheckpointLoadWhere, folder,
                           " is a universal checkpoint: it loads with checkpoint.load_universal = true");
  }
  if (!states.optimizer.is_none())
    return checkpoint::OptimizerFiles::of_model_file(model_file, states.optimizer, shapes);
  if (checkpoint::find_optim_states(directory, tag).empty()) {
    raise<CheckpointError>(kCheckpointLoadWhere, directory, "/", tag,
                           " holds no optimizer states; load with load_optimizer_states = false");
  }
  return checkpoint::OptimizerFiles::of_partitions(directory, tag, manifest, states.states.param_shapes);
}

void CheckpointIo::load_optimizer(const checkpoint::OptimizerFiles& source, bool reads_masters) {
  zero::ZeroOptimizer& optimizer = *engine_.optimizer_;
  const auto& groups = optimizer.store().groups();
  if (source.groups().size() != groups.size()) {
    raise<checkpoint::MisfitError>(kCheckpointLoadWhere, "the checkpoint has ", source.groups().size(),
                                   " parameter groups, the optimizer has ", groups.size());
  }
  if (source.loss_scaler()) load_scaler(*source.loss_scaler());
  bool has_masters = true, has_states = true;
  for (size_t index = 0; index < groups.size(); ++index) {
    const auto& group = source.groups()[index];
    optimizer.change_state(index, [&](const zero::StateSlice& slice) {
      const bool found = load_slice(source, index, slice, optimizer.has_master_weights() || reads_masters);
      has_masters = has_masters && found;
    });
    has_states = has_states && (group.step > 0 || !group.states.empty());
    load_group_options(index, group.options);
  }
  if (!has_masters) optimizer.restore_masters_from_model();  // of a model in fp32 at stage 0
  if (has_states) optimizer.state_was_loaded();
}

bool CheckpointIo::load_slice(const checkpoint::OptimizerFiles& source, size_t index,
                              const zero::StateSlice& slice, bool wants_master) const {
  const auto pieces = engine_.optimizer_->pieces(index, slice.interval);
  const auto& params = engine_.optimizer_->store().groups()[index].params;
  bool has_master = true;
  // The part of a state, flat, that is in the slice; what the files do not have stays.
  const auto read = [&](const std::string& state, const at::Tensor& flat) {
    for (const zero::ParamPiece& piece : pieces) {
      const std::string& name = params[piece.index].name;
      if (source.numel(name, state) == 0 && state == checkpoint::kMasterState) {
        has_master = false;
        continue;
      }
      const Interval elements{piece.offset_in_param, piece.offset_in_param + piece.in_interval.numel()};
      source.read(name, state, elements, flat.narrow(0, piece.in_interval.begin, piece.in_interval.numel()));
    }
  };
  if (wants_master) read(checkpoint::kMasterState, slice.master);
  optim::SliceState state;
  state.step = source.groups()[index].step;
  for (const auto& [name, type] : source.groups()[index].states) {
    const at::Tensor flat = at::empty({slice.interval.numel()}, slice.master.options().dtype(type));
    zero_padding(flat, pieces);
    read(name, flat);
    state.tensors.emplace_back(name, flat);
  }
  if (!state.tensors.empty() || state.step > 0) slice.load(state);
  return has_master;
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

void CheckpointIo::load_run_state(const std::string& directory, const std::string& tag,
                                  const checkpoint::Manifest& manifest) {
  fs::path path = checkpoint::rng_states_path(directory, tag, engine_.rank());
  const bool own = fs::exists(path);
  if (!own) path = checkpoint::rng_states_path(directory, tag, 0);
  if (!fs::exists(path)) return;  // written by DeepSpeed itself
  const checkpoint::RunState state =
      checkpoint::parse_run_state(checkpoint::read_torch_archive(path, {.sums = manifest.sums_of(path)}));
  if (engine_.config_.managed_gradient_accumulation)
    engine_.micro_steps_ = state.micro_steps % engine_.config_.gradient_accumulation_steps;
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
