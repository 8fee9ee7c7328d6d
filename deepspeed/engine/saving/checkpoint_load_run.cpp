// Loads the small parts of a checkpoint, and restores the old ones if a rank cannot take them.
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/engine/data/sampler.h"
#include "deepspeed/engine/saving/checkpoint_load.h"
#include "deepspeed/optim/slices/param_group.h"
#include "deepspeed/precision/loss_scaler.h"
#include "deepspeed/random/cuda_rng_tracker.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {
namespace {

precision::DynamicLossScaler* dynamic_scaler(zero::ZeroOptimizer* optimizer) {
  if (optimizer == nullptr) return nullptr;
  return dynamic_cast<precision::DynamicLossScaler*>(&optimizer->loss_scaler());
}

// Holds what load_run() and load_hyperparameters() change, so that it can be restored.
struct RunSnapshot {
  RunCounters counters;
  AccumulationWindow window;
  std::set<std::string> sparse_names;
  std::optional<Json> schedule;                // nothing: not loaded
  std::vector<optim::Hyperparameters> groups;  // [group]
  std::optional<precision::DynamicLossScaler> scaler;
  at::Tensor cpu_rng;
  at::Tensor cuda_rng;                            // undefined if it is not loaded
  std::map<std::string, at::Tensor> rng_streams;  // of CudaRNGStatesTracker
  std::optional<LoaderPosition> loader;
};

bool loads_schedule(const CheckpointLoad& load) {
  return load.options.load_lr_scheduler_states && !load.options.load_module_only && load.parts.lr_scheduler &&
         load.states.lr_scheduler;
}

RunSnapshot run_snapshot(const CheckpointLoad& load) {
  RunSnapshot now;
  now.counters = load.training.counters;
  now.window = load.training.window;
  now.sparse_names = load.training.sparse_names;
  if (loads_schedule(load)) now.schedule = load.parts.lr_scheduler->state_dict();
  if (load.parts.optimizer) {
    for (const auto& group : load.parts.optimizer->param_groups()) now.groups.push_back(group.options);
  }
  if (const auto* scaler = dynamic_scaler(load.parts.optimizer.get())) now.scaler = *scaler;
  now.cpu_rng = device::cpu_rng_state();
  if (load.run && load.run->cuda_rng.defined()) now.cuda_rng = device::cuda_rng_state();
  now.rng_streams = get_cuda_rng_tracker().get_states();
  if (load.training.loader_position) now.loader = *load.training.loader_position;
  return now;
}

void restore(TrainingState& training, const RunSnapshot& before) {
  try {
    if (before.schedule) training.parts.lr_scheduler->load_state_dict(*before.schedule);
  } catch (const std::exception& error) {
    log::error("[checkpoint] the schedule does not take its own state back: ", error.what());
  }
  for (size_t index = 0; index < before.groups.size(); ++index)
    training.parts.optimizer->param_groups()[index].options = before.groups[index];
  if (before.scaler) *dynamic_scaler(training.parts.optimizer.get()) = *before.scaler;
  const RunCounters now = training.counters;
  training.counters = before.counters;
  training.window = before.window;
  training.sparse_names = before.sparse_names;
  // These counters are not restored, because the gradients of the window may already be dropped.
  training.counters.backwards_since_update = now.backwards_since_update;
  training.counters.backwards_in_sums = now.backwards_in_sums;
  training.counters.dropped_backwards = now.dropped_backwards;
  device::set_cpu_rng_state(before.cpu_rng);
  if (before.cuda_rng.defined()) device::set_cuda_rng_state(before.cuda_rng);
  get_cuda_rng_tracker().set_states(before.rng_streams);
  if (before.loader) *training.loader_position = *before.loader;
}

void load_sparse_names(const CheckpointLoad& load) {
  if (!load.states.sparse_names) return;
  const std::set<std::string>& loaded = *load.states.sparse_names;
  std::set<std::string>& own = load.training.sparse_names;
  if (load.options.load_module_strict) {
    own = loaded;
    return;
  }
  for (const StoredTensor& stored : load.module)
    if (!loaded.contains(stored.name)) own.erase(stored.name);
  for (const NamedTensor& param : load.parts.model.parameters)
    if (loaded.contains(param.name)) own.insert(param.name);
}

void load_scaler(const CheckpointLoad& load) {
  if (!load.optimizer || !load.optimizer->loss_scaler()) return;
  const checkpoint::LossScalerStates& states = *load.optimizer->loss_scaler();
  auto* dynamic = dynamic_scaler(load.parts.optimizer.get());
  if (dynamic == nullptr || !states.dynamic) return;  // a constant scale follows from the config
  dynamic->set_state({states.cur_scale, states.cur_iter, states.last_overflow_iter, states.cur_hysteresis});
  if (!states.raise_error_at_min_scale) dynamic->set_raise_error_at_min_scale(false);
}

}  // namespace

void open_run(CheckpointLoad& load) {
  if (load.options.load_module_only) return;
  const int rank = load.parts.groups.all.rank();
  std::filesystem::path path = checkpoint::rng_states_path(load.directory, load.tag, rank);
  load.has_own_run = std::filesystem::exists(path);
  if (!load.has_own_run && rank < load.archives->num_ranks() && !load.parts.config.checkpoint.load_universal)
    raise<CheckpointError>("the file ", path, " is missing");
  if (!load.has_own_run) path = checkpoint::rng_states_path(load.directory, load.tag, 0);
  if (!std::filesystem::exists(path)) return;
  const auto read = [&](const std::filesystem::path& file) {
    return checkpoint::parse_run_state(load.archives->read(file));
  };
  load.run = read(path);
  // Only the first and last stage of a pipeline read data; with another number of stages any rank may be one
  // of these.
  const auto first = checkpoint::rng_states_path(load.directory, load.tag, 0);
  if (!load.parts.model.stored_layers.empty() && rank != 0 && std::filesystem::exists(first))
    load.run->loader = read(first).loader;
}

std::function<void()> remember_run(const CheckpointLoad& load) {
  return [&training = load.training, before = run_snapshot(load)] { restore(training, before); };
}

void load_run(const CheckpointLoad& load) {
  if (load.options.load_module_only) return;
  const checkpoint::ModelStates& states = load.states;
  if (loads_schedule(load)) load.parts.lr_scheduler->load_state_dict(*states.lr_scheduler);
  // After the schedule, which writes its own rates: the rates in the file may have been set by hand.
  load_hyperparameters(load);
  load_scaler(load);
  load_sparse_names(load);
  load.training.counters.global_steps = states.global_steps;
  load.training.counters.global_samples = states.global_samples;
  load.training.counters.skipped_steps = states.skipped_steps;
  load.training.counters.micro_steps = 0;
  load.training.window = {load.parts.config.gradient_accumulation_steps, load.parts.config.train_batch_size};
  load.training.counters.step_applied =
      states.global_steps > 0 && !(load.optimizer && load.optimizer->overflow());
  if (!load.run) return;
  if (load.parts.config.managed_gradient_accumulation)
    load.training.counters.micro_steps = load.run->micro_steps % load.training.window.steps;
  if (load.has_own_run) {
    device::set_cpu_rng_state(load.run->cpu_rng);
    if (load.run->cuda_rng.defined()) device::set_cuda_rng_state(load.run->cuda_rng);
    if (!load.run->rng_streams.empty()) get_cuda_rng_tracker().set_states(load.run->rng_streams);
  }
  if (!load.training.loader_position || !load.run->loader) return;
  const checkpoint::LoaderState& loader = *load.run->loader;
  *load.training.loader_position = {loader.seed, loader.epoch, loader.samples_consumed, loader.epoch_ended,
                                    /*resume=*/!loader.epoch_ended};
}

}  // namespace deepspeed
