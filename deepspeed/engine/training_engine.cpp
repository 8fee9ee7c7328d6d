// Implements what all engines report and set, using the parts that they are composed of. Nothing here runs
// forward or backward.
#include "deepspeed/engine/training_engine.h"

#include <cmath>
#include <exception>
#include <limits>
#include <sstream>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/on_all_ranks.h"
#include "deepspeed/engine/assembly/build.h"
#include "deepspeed/engine/assembly/zero_choices.h"
#include "deepspeed/engine/data/loader_options.h"
#include "deepspeed/engine/saving/background_saver.h"
#include "deepspeed/engine/saving/checkpoints.h"
#include "deepspeed/engine/step/preemption.h"
#include "deepspeed/engine/step/step_driver.h"
#include "deepspeed/engine/step/update_report.h"
#include "deepspeed/monitor/monitor_master.h"
#include "deepspeed/optim/schedules/lr_scheduler_source.h"
#include "deepspeed/profile/throughput.h"
#include "deepspeed/zero/access/gather_pool.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/make_whole.h"
#include "deepspeed/zero/offload/parked_storages.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/params/set_values.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {

TrainingEngine::TrainingEngine(EngineParts parts)
    : TrainingEngine(std::make_unique<TrainingState>(std::move(parts))) {}

TrainingEngine::TrainingEngine(std::unique_ptr<TrainingState> state)
    : state_(std::move(state)),
      driver_(std::make_unique<StepDriver>(*state_)),
      parked_states_(std::make_unique<zero::ParkedStorages>()) {
  const auto& throughput = config().timers.throughput;
  if (throughput.enabled) throughput_ = std::make_unique<profile::Throughput>(throughput.synchronized);
  monitor_ = std::make_unique<monitor::MonitorMaster>(/*is_writer=*/rank() == 0);
  comm::on_all_ranks(state_->parts.groups.all, "opening the monitors",
                     [&] { monitor_->add_configured(config()); });
}

TrainingEngine::~TrainingEngine() {
  try {
    if (!parked_states_->empty()) reload_states();
  } catch (const std::exception& error) {
    log::error("[engine] states that offload_states() moved to the host are lost: ", error.what());
  }
  let_go_of_model();
}

void TrainingEngine::let_go_of_model() noexcept {
  if (optimizer()) optimizer()->retire();
  if (state_->parts.pool) state_->parts.pool->abandon();
}

zero::ZeroOptimizer& TrainingEngine::require_optimizer(const char* call) const {
  if (state_->is_destroyed) raise<UsageError>(call, "() after destroy()");
  if (!optimizer()) {
    raise<UsageError>(
        call,
        "() needs an optimizer: name one in the config's `optimizer` section or pass one to initialize()");
  }
  // An engine of several ranks gets this error, with the reason, from its next collective.
  if (state_->parts.world.size() == 1 && state_->parts.world.was_left()) {
    raise<UsageError>(call,
                      "() of an engine whose world was left, by destroy_process_group() or shutdown(): ",
                      "leave it after the last step, or make another engine after init_distributed()");
  }
  require_states_here(call);
  return *optimizer();
}

// --- training ---

void TrainingEngine::zero_grad() { driver_->zero_grad(); }

void TrainingEngine::train(bool mode) {
  state_->parts.model.set_training(mode);
  state_->is_training = mode;
  if (throughput_) mode ? throughput_->resume() : throughput_->pause();
}

void TrainingEngine::install_preemption_handler(const PreemptionOptions& options) {
  preemption_ = std::make_unique<PreemptionWatch>(options);
}

bool TrainingEngine::preemption_requested() const { return preemption_ && preemption_->requested(); }

void TrainingEngine::compile(const CompileOptions& options) {
  if (!options.schedule.is_null()) {
    raise<NotSupportedError>("compile(): schedule: passes over a compiled graph come with deepcompile, ",
                             "which does not exist yet; leave it out");
  }
  log::info("[engine] compile(backend = \"", options.backend,
            "\"): the model is C++ that the compiler has optimized already; nothing is traced or generated");
  is_compiled_ = true;
}

void TrainingEngine::empty_partition_cache() {
  if (state_->parts.pool) state_->parts.pool->empty_cache();
}

void TrainingEngine::destroy(const DestroyOptions& options) {
  reload_states();
  EngineParts& parts = state_->parts;
  std::vector<at::Tensor> params;
  for (const NamedTensor& param : parts.model.parameters) params.push_back(param.tensor);
  if (parts.pool) zero::check_unused(params);
  if (parts.optimizer && parts.optimizer->gradients().is_open())
    parts.optimizer->gradients().finish_backward();
  wait_for_checkpoint();
  if (parts.optimizer) {
    for (const at::Tensor& param : params) param.mutable_grad().reset();
  }
  let_go_of_model();
  parts.lr_scheduler.reset();
  parts.optimizer.reset();
  parts.claims.release();
  parts.params.reset();
  driver_->refresh();
  state_->is_destroyed = true;
  if (!parts.pool || options.keep_partitioned) return;
  zero::make_whole(params);
  parts.pool.reset();
}

// --- what happened ---

int64_t TrainingEngine::micro_steps() const { return state_->counters.micro_steps; }
int64_t TrainingEngine::global_steps() const { return state_->counters.global_steps; }
int64_t TrainingEngine::global_samples() const { return state_->counters.global_samples; }
int64_t TrainingEngine::skipped_steps() const { return state_->counters.skipped_steps; }
bool TrainingEngine::was_step_applied() const { return state_->counters.step_applied; }

void TrainingEngine::end_step(int64_t samples) {
  if (state_->parts.pool) state_->parts.pool->gather_persistent();
  if (preemption_) preemption_->end_step(state_->parts.groups.all);
  if (throughput_) throughput_->end_step(samples);
  if (monitor_->enabled()) monitor_->write_events(update_events(*state_, driver_->timers()));
  const auto every = config().steps_per_print;
  if (every && global_steps() % *every == 0) report_progress();
  if (driver_->timers() && global_steps() % every.value_or(1) == 0)
    log::info(driver_->timers()->global_line());
}

std::optional<double> TrainingEngine::get_global_grad_norm() const {
  const auto& norm = driver_->grad_norm();
  return norm ? std::optional(norm->value()) : std::nullopt;
}

void TrainingEngine::report_progress() {
  log_progress({.state = *state_, .lr = get_lr(), .mom = get_mom(), .throughput = throughput_.get()});
}

// Each step computes it from the number of earlier steps (https://arxiv.org/abs/2010.13369, equation 6).
std::optional<double> TrainingEngine::get_pld_theta() const {
  const auto& drop = config().progressive_layer_drop;
  if (!drop || !drop->enabled) return std::nullopt;
  if (global_steps() == 0) return 1.0;
  const auto steps = static_cast<double>(global_steps() - 1);
  return (1.0 - drop->theta) * std::exp(-drop->gamma * steps) + drop->theta;
}

std::map<std::string, double> TrainingEngine::get_wall_clock_timers() const {
  return driver_->timers() ? driver_->timers()->last() : std::map<std::string, double>();
}

std::vector<double> TrainingEngine::get_lr() const {
  std::vector<double> rates;
  for (const auto& group : require_optimizer("get_lr").param_groups()) rates.push_back(group.lr());
  return rates;
}

std::vector<std::pair<double, double>> TrainingEngine::get_mom() const {
  std::vector<std::pair<double, double>> result;
  for (const auto& group : require_optimizer("get_mom").param_groups()) {
    if (group.options.contains("betas")) {
      result.push_back(group.options.pair("betas"));
    } else {
      result.emplace_back(group.options.contains("momentum") ? group.options.number("momentum") : 0.0, 0.0);
    }
  }
  return result;
}

std::vector<std::string> TrainingEngine::get_type() const {
  std::vector<std::string> types;
  for (const auto& group : require_optimizer("get_type").param_groups()) {
    types.push_back(group.options.contains("type") ? group.options.text("type") : std::string());
  }
  return types;
}

void TrainingEngine::set_lr(double lr) {
  zero::ZeroOptimizer& optimizer = require_optimizer("set_lr");
  optim::check_lr(lr);
  for (auto& group : optimizer.param_groups()) group.set_lr(lr);
  optimizer.tell_ranks();
}

double TrainingEngine::loss_scale() const { return optimizer() ? optimizer()->loss_scale() : 1.0; }

zero::MemoryBytes TrainingEngine::memory() const {
  if (optimizer()) return optimizer()->memory();
  zero::MemoryBytes memory;
  for (const auto& param : model().parameters) {
    memory.parameters += zero::held_bytes(param.tensor);
    memory.on_disk += zero::disk_bytes(param.tensor);
  }
  if (state_->parts.params) memory.swap_buffers = state_->parts.params->buffer_bytes();
  return memory;
}

// --- settings ---

const std::set<std::string>& TrainingEngine::sparse_tensor_module_names() const {
  return state_->sparse_names;
}

bool TrainingEngine::torch_autocast_enabled() const { return state_->parts.autocast.has_value(); }

at::ScalarType TrainingEngine::torch_autocast_dtype() const {
  if (!state_->parts.autocast) raise<UsageError>("torch_autocast_dtype(): torch_autocast.enabled is false");
  return *state_->parts.autocast;
}

const comm::World& TrainingEngine::world() const { return state_->parts.world; }
const comm::ProcessGroup& TrainingEngine::data_parallel_group() const { return state_->parts.data_group(); }
int TrainingEngine::rank() const { return world().rank(); }
int TrainingEngine::local_rank() const { return world().local_rank(); }
at::Device TrainingEngine::device() const { return model().device(); }
int TrainingEngine::get_model_parallel_rank() const { return state_->parts.groups.model_rank(); }

int TrainingEngine::dp_world_size() const { return data_parallel_group().size(); }
int TrainingEngine::get_data_parallel_rank() const { return data_parallel_group().rank(); }
const std::shared_ptr<zero::ZeroOptimizer>& TrainingEngine::optimizer() const {
  return state_->parts.optimizer;
}
const std::shared_ptr<optim::LrScheduler>& TrainingEngine::lr_scheduler() const {
  return state_->parts.lr_scheduler;
}
void TrainingEngine::set_lr_scheduler(const optim::LrSchedulerSource& schedule) {
  zero::ZeroOptimizer& optimizer = require_optimizer("set_lr_scheduler");
  state_->parts.lr_scheduler = schedule ? schedule.make({optimizer.param_groups()}) : nullptr;
}
const EngineModel& TrainingEngine::model() const { return state_->parts.model; }
uint64_t TrainingEngine::seed() const { return state_->parts.seed; }

std::tuple<int64_t, int64_t, int64_t> TrainingEngine::get_batch_info() const {
  return {config().train_batch_size, config().train_micro_batch_size_per_gpu,
          config().gradient_accumulation_steps};
}

void TrainingEngine::set_train_batch_size(int64_t size) {
  config::DeepSpeedConfig& config = state_->parts.config;
  const int64_t unit = config.train_micro_batch_size_per_gpu * dp_world_size();
  if (size < unit || size % unit != 0) {
    raise<UsageError>("set_train_batch_size(", size, "): expected a positive multiple of micro batch ",
                      config.train_micro_batch_size_per_gpu, " * ", dp_world_size(), " ranks");
  }
  config.gradient_accumulation_steps = size / unit;
  config.train_batch_size = size;
  driver_->refresh();
}

void TrainingEngine::set_train_micro_batch_size(int64_t size) {
  config::DeepSpeedConfig& config = state_->parts.config;
  const int64_t largest =
      std::numeric_limits<int64_t>::max() / config.gradient_accumulation_steps / dp_world_size();
  if (size < 1 || size > largest) {
    raise<UsageError>("set_train_micro_batch_size(", size, "): expected 1 to ", largest);
  }
  config.train_micro_batch_size_per_gpu = size;
  config.train_batch_size = size * config.gradient_accumulation_steps * dp_world_size();
  driver_->refresh();
}

const config::DeepSpeedConfig& TrainingEngine::config() const { return state_->parts.config; }

bool TrainingEngine::gradient_average() const { return config().gradient_allreduce_op != "sum"; }

void TrainingEngine::set_gradient_average(bool averages) {
  zero::ZeroOptimizer& optimizer = require_optimizer("set_gradient_average");
  config::DeepSpeedConfig changed = state_->parts.config;
  changed.gradient_allreduce_op = averages ? "mean" : "sum";
  try {
    config::require_consistent(changed, dp_world_size());
  } catch (const ConfigError& error) {
    raise<UsageError>("set_gradient_average(", averages ? "true" : "false", "): ", error.what());
  }
  optimizer.gradients().set_averaging(zero_options(changed, dp_world_size()).gradients.averaging);
  state_->parts.config.gradient_allreduce_op = changed.gradient_allreduce_op;
  driver_->refresh();
}

// --- checkpoints ---

DataLoaderOptions TrainingEngine::loader_options(const DeepSpeedIoOptions& options) const {
  if (options.route != "train" && options.route != "eval" && options.route != "predict") {
    raise<UsageError>("deepspeed_io(): route '", options.route,
                      "', expected \"train\", \"eval\" or \"predict\"");
  }
  DataLoaderOptions result;
  result.batch_size = options.batch_size.value_or(config().train_micro_batch_size_per_gpu);
  result.rank = get_data_parallel_rank();
  result.world_size = dp_world_size();
  result.shuffle = options.route == "train";
  result.drop_last = config().dataloader_drop_last;
  result.seed = seed();
  result.pin_memory = options.pin_memory && device().is_cuda();
  result.device = device();
  result.data_sampler = options.data_sampler;
  result.num_local_io_workers = options.num_local_io_workers;
  return result;
}

void TrainingEngine::track_loader(std::shared_ptr<LoaderPosition> position) {
  state_->loader_position = std::move(position);
}

void TrainingEngine::save_checkpoint(const std::string& directory, const SaveOptions& options) {
  require_states_here("save_checkpoint");
  deepspeed::save_checkpoint(*state_, directory, options);
  if (state_->parts.pool) state_->parts.pool->gather_persistent();
}

LoadResult TrainingEngine::load_checkpoint(const std::string& directory, const LoadOptions& options) {
  require_memory_here("load_checkpoint");  // a load that failed halfway is repaired by the next one
  LoadResult result = deepspeed::load_checkpoint(*state_, directory, options);
  driver_->refresh();
  if (state_->parts.pool) state_->parts.pool->gather_persistent();
  return result;
}

void TrainingEngine::wait_for_checkpoint() {
  if (state_->background_saver) state_->background_saver->wait();
}

bool TrainingEngine::checkpoint_is_saved() const {
  return !state_->background_saver || state_->background_saver->is_done();
}

void TrainingEngine::save_16bit_model(const std::string& directory, const std::string& file_name,
                                      bool exclude_frozen_parameters) {
  require_states_here("save_16bit_model");
  deepspeed::save_16bit_model(*state_, directory, file_name, exclude_frozen_parameters);
}

}  // namespace deepspeed
