// Loads the small parts of a checkpoint, and restores the old ones if a rank cannot take them.
#include <exception>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/engine/saving/checkpoint_loader.h"
#include "deepspeed/precision/loss_scaler.h"
#include "deepspeed/random/cuda_rng_tracker.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {
namespace {

precision::DynamicLossScaler* dynamic_scaler(zero::ZeroOptimizer* optimizer) {
  if (optimizer == nullptr) return nullptr;
  return dynamic_cast<precision::DynamicLossScaler*>(&optimizer->loss_scaler());
}

}  // namespace

void CheckpointLoader::open_run(const std::string& directory, const std::string& tag,
                                OpenedCheckpoint& opened) const {
  std::filesystem::path path = checkpoint::rng_states_path(directory, tag, rank());
  opened.has_own_run = std::filesystem::exists(path);
  if (!opened.has_own_run && rank() < opened.archives->num_ranks() &&
      !parts_.config.checkpoint.load_universal)
    raise<CheckpointError>("the file ", path, " is missing");
  if (!opened.has_own_run) path = checkpoint::rng_states_path(directory, tag, 0);
  if (!std::filesystem::exists(path)) return;
  const auto read = [&](const std::filesystem::path& file) {
    return checkpoint::parse_run_state(opened.archives->read(file));
  };
  opened.run = read(path);
  // Only the first and last stage of a pipeline read data; with another number of stages any rank may be one
  // of these.
  const auto first = checkpoint::rng_states_path(directory, tag, 0);
  if (!parts_.model.stored_layers.empty() && rank() != 0 && std::filesystem::exists(first))
    opened.run->loader = read(first).loader;
}

bool CheckpointLoader::loads_schedule(const OpenedCheckpoint& opened, const LoadOptions& options) const {
  return options.load_lr_scheduler_states && !options.load_module_only && parts_.lr_scheduler &&
         opened.states.lr_scheduler;
}

RunSnapshot CheckpointLoader::run_snapshot(const OpenedCheckpoint& opened, const LoadOptions& options) const {
  RunSnapshot now;
  now.counters = state_.counters;
  now.window = state_.window;
  now.sparse_names = state_.sparse_names;
  if (loads_schedule(opened, options)) now.schedule = parts_.lr_scheduler->state_dict();
  if (parts_.optimizer) {
    for (const auto& group : parts_.optimizer->param_groups()) now.groups.push_back(group.options);
  }
  if (const auto* scaler = dynamic_scaler(parts_.optimizer.get())) now.scaler = *scaler;
  now.cpu_rng = device::cpu_rng_state();
  if (opened.run && opened.run->cuda_rng.defined()) now.cuda_rng = device::cuda_rng_state();
  now.rng_streams = get_cuda_rng_tracker().get_states();
  if (state_.loader_position) now.loader = *state_.loader_position;
  return now;
}

void CheckpointLoader::load_sparse_names(const OpenedCheckpoint& opened, bool strict) {
  if (!opened.states.sparse_names) return;
  const std::set<std::string>& loaded = *opened.states.sparse_names;
  std::set<std::string>& own = state_.sparse_names;
  if (strict) {
    own = loaded;
    return;
  }
  for (const StoredTensor& stored : opened.module)
    if (!loaded.contains(stored.name)) own.erase(stored.name);
  for (const NamedTensor& param : parts_.model.parameters)
    if (loaded.contains(param.name)) own.insert(param.name);
}

void CheckpointLoader::load_run(const OpenedCheckpoint& opened, const LoadOptions& options) {
  const checkpoint::ModelStates& states = opened.states;
  if (loads_schedule(opened, options)) parts_.lr_scheduler->load_state_dict(*states.lr_scheduler);
  // After the schedule, which writes its own rates: the rates in the file may have been set by hand.
  if (opened.optimizer) {
    auto& groups = parts_.optimizer->param_groups();
    for (size_t index = 0; index < groups.size(); ++index)
      groups[index].options = loaded_options(index, opened.optimizer->groups()[index].options);
    if (opened.optimizer->loss_scaler()) load_scaler(*opened.optimizer->loss_scaler());
  }
  load_sparse_names(opened, options.load_module_strict);
  state_.counters.global_steps = states.global_steps;
  state_.counters.global_samples = states.global_samples;
  state_.counters.skipped_steps = states.skipped_steps;
  state_.counters.micro_steps = 0;
  state_.window = {parts_.config.gradient_accumulation_steps, parts_.config.train_batch_size};
  state_.counters.step_applied =
      states.global_steps > 0 && !(opened.optimizer && opened.optimizer->overflow());
  if (!opened.run) return;
  if (parts_.config.managed_gradient_accumulation)
    state_.counters.micro_steps = opened.run->micro_steps % state_.window.steps;
  if (opened.has_own_run) {
    device::set_cpu_rng_state(opened.run->cpu_rng);
    if (opened.run->cuda_rng.defined()) device::set_cuda_rng_state(opened.run->cuda_rng);
    if (!opened.run->rng_streams.empty()) get_cuda_rng_tracker().set_states(opened.run->rng_streams);
  }
  if (!state_.loader_position || !opened.run->loader) return;
  const checkpoint::LoaderState& loader = *opened.run->loader;
  *state_.loader_position = {loader.seed, loader.epoch, loader.samples_consumed, loader.epoch_ended,
                             /*resume=*/!loader.epoch_ended};
}

void CheckpointLoader::load_scaler(const checkpoint::LossScalerStates& states) {
  auto* dynamic = dynamic_scaler(parts_.optimizer.get());
  if (dynamic == nullptr || !states.dynamic) return;  // a constant scale follows from the config
  dynamic->set_state({states.cur_scale, states.cur_iter, states.last_overflow_iter, states.cur_hysteresis});
  if (!states.raise_error_at_min_scale) dynamic->set_raise_error_at_min_scale(false);
}

void CheckpointLoader::put_back(const RunSnapshot& before) {
  try {
    if (before.schedule) parts_.lr_scheduler->load_state_dict(*before.schedule);
  } catch (const std::exception& error) {
    log::error("[checkpoint] the schedule does not take its own state back: ", error.what());
  }
  for (size_t index = 0; index < before.groups.size(); ++index)
    parts_.optimizer->param_groups()[index].options = before.groups[index];
  if (before.scaler) *dynamic_scaler(parts_.optimizer.get()) = *before.scaler;
  const RunCounters now = state_.counters;
  state_.counters = before.counters;
  state_.window = before.window;
  state_.sparse_names = before.sparse_names;
  // The gradients of the window may already be dropped.
  state_.counters.backwards_since_update = now.backwards_since_update;
  state_.counters.backwards_in_sums = now.backwards_in_sums;
  state_.counters.dropped_backwards = now.dropped_backwards;
  device::set_cpu_rng_state(before.cpu_rng);
  if (before.cuda_rng.defined()) device::set_cuda_rng_state(before.cuda_rng);
  get_cuda_rng_tracker().set_states(before.rng_streams);
  if (before.loader) *state_.loader_position = *before.loader;
}

}  // namespace deepspeed
