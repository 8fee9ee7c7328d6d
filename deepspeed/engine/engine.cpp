#include "deepspeed/engine/engine.h"

#include <algorithm>
#include <exception>
#include <iomanip>
#include <limits>
#include <sstream>
#include <utility>

#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/engine/autograd/backward_access.h"
#include "deepspeed/engine/guards/model_changes.h"
#include "deepspeed/engine/saving/background_saver.h"
#include "deepspeed/profile/memory_report.h"
#include "deepspeed/zero/access/gather_pool.h"
#include "deepspeed/zero/make_whole.h"
#include "deepspeed/zero/params/set_values.h"

namespace deepspeed {
namespace {

constexpr const char* kEngineWhere = "engine";

void reset_gradients(const EngineModel& model) {
  for (const NamedTensor& param : model.parameters) param.tensor.mutable_grad().reset();
}

}  // namespace

Engine::Engine(EngineParts parts)
    : ConfigGetters(std::move(parts.config)),
      world_(std::move(parts.world)),
      group_(std::move(parts.group)),
      model_(std::move(parts.model)),
      optimizer_(std::move(parts.optimizer)),
      lr_scheduler_(std::move(parts.lr_scheduler)),
      seed_(parts.seed),
      autocast_(parts.autocast),
      pool_(std::move(parts.pool)),
      params_(std::move(parts.params)),
      claims_(std::move(parts.claims)) {
  client_optimizer_ = std::move(parts.client_optimizer);
  if (config_.wall_clock_breakdown) timers_ = std::make_unique<profile::StepTimers>();
  if (config_.timers.throughput.enabled) throughput_.emplace(config_.timers.throughput.synchronized);
  const auto& writer = config_.checkpoint.writer;
  if (writer && writer->decoupled) background_saver_ = std::make_unique<BackgroundSaver>(world_, group_);
  if (optimizer_) model_changes_ = std::make_unique<ModelChanges>(model_, optimizer_->store());
  refresh_boundary();
}

Engine::~Engine() {
  try {
    if (!parked_states_.empty()) reload_states();
  } catch (const std::exception& error) {
    log::error("[engine] states that offload_states() moved to the host are lost: ", error.what());
  }
  let_go_of_model();
}

void Engine::let_go_of_model() noexcept {
  if (optimizer_) optimizer_->retire();
  if (pool_) pool_->abandon();
}

profile::StepTimers::Scope Engine::time_part(profile::StepPart part) const {
  return {is_training_ ? timers_.get() : nullptr, part};
}

std::map<std::string, double> Engine::get_wall_clock_timers() const {
  return timers_ ? timers_->last() : std::map<std::string, double>();
}

void Engine::note_memory(const char* when) const {
  if (config_.memory_breakdown) log::info("[engine] memory ", when, ": ", profile::memory_in_use());
}

void Engine::require_whole(const char* call) const {
  if (loaded_in_part_.empty()) return;
  raise<UsageError>(
      kEngineWhere, call,
      "(): the engine holds parts of a checkpoint, since load_checkpoint() failed while it wrote: ",
      loaded_in_part_,
      "; load a checkpoint with its optimizer states, or build the model and its engine anew");
}

zero::ZeroOptimizer& Engine::require_optimizer(const char* call) const {
  if (is_destroyed_) raise<UsageError>(kEngineWhere, call, "() after destroy()");
  if (!optimizer_) {
    raise<UsageError>(kEngineWhere, call,
                      "() needs an optimizer: name one in the config's `optimizer` section or pass one "
                      "to initialize()");
  }
  require_states_here(call);
  return *optimizer_;
}

// The node on the outputs of forward() scales a direct loss.backward(); it must know the scale of this
// moment.
void Engine::refresh_boundary() {
  if (!optimizer_) return;
  optimizer_->set_micro_step(micro_steps_);
  optimizer_->set_batch({.gradient_accumulation_steps = config_.gradient_accumulation_steps,
                         .train_micro_batch_size_per_gpu = config_.train_micro_batch_size_per_gpu,
                         .is_boundary = is_gradient_accumulation_boundary()});
  // Unmanaged, nobody knows at a backward whether it is the last: step() reduces.
  optimizer_->set_boundary(config_.managed_gradient_accumulation && !in_no_sync_ &&
                           is_gradient_accumulation_boundary());
  *output_scale_ = {optimizer_->loss_scale(), static_cast<double>(config_.gradient_accumulation_steps)};
}

at::Tensor Engine::backward(const at::Tensor& loss, const BackwardOptions& options) {
  zero::ZeroOptimizer& optimizer = require_optimizer("backward");
  if (!loss.defined() || loss.numel() != 1 || !loss.requires_grad()) {
    raise<UsageError>(kEngineWhere, "backward() takes a scalar loss that needs a gradient, got ",
                      loss.defined() ? message("a tensor of ", loss.numel(), " elements, requires_grad ",
                                               loss.requires_grad() ? "true" : "false")
                                     : std::string("an undefined tensor"));
  }
  if (is_scaled_loss(loss)) {
    raise<UsageError>(kEngineWhere,
                      "backward() of a loss that scale() has scaled, which backward() does too: ",
                      "pass the loss itself, or call backward() on the scaled loss");
  }
  note_memory("before backward");
  const auto timing = time_part(profile::StepPart::kBackward);
  finish_backward();  // a direct loss.backward() before this one
  optimizer.tell_ranks();
  const double divisor =
      options.scale_wrt_gas ? static_cast<double>(config_.gradient_accumulation_steps) : 1.0;
  if (!options.allreduce_gradients) {
    if (zero_optimization_stage() >= 2) {
      raise<UsageError>(kEngineWhere, "backward() with allreduce_gradients = false does not fit ZeRO stage ",
                        zero_optimization_stage(),
                        ", which partitions gradients in every backward; use stage 0 or 1");
    }
    optimizer.set_boundary(false);
  }
  const c10::AutoGradMode with_grad(true);
  {
    const auto inner = time_part(profile::StepPart::kBackwardInner);
    std::optional<zero::ParameterAccess> access;
    enter_access(access, zero::AccessMode::kBackward);
    with_root_scale(loss, {optimizer.loss_scale(), divisor}).backward({}, options.retain_graph);
  }
  {
    const auto reductions = time_part(profile::StepPart::kBackwardAllreduce);
    optimizer.finish_backward();
  }
  note_backward();
  refresh_boundary();
  note_memory("after backward");
  if (options.release_loss) return {};
  const c10::NoGradGuard no_grad;
  return divisor == 1.0 ? loss.detach() : loss.detach().div(divisor);
}

void Engine::enter_autocast(std::optional<precision::AutocastScope>& scope) const {
  if (!autocast_) return;
  scope.emplace(model_.device().type(), *autocast_);
}

void Engine::enter_access(std::optional<zero::ParameterAccess>& access, zero::AccessMode mode) const {
  require_whole(mode == zero::AccessMode::kBackward ? "backward" : "forward");
  if (pool_) access.emplace(pool_, mode);
}

at::Tensor Engine::as_output(const at::Tensor& tensor) const {
  return scale_gradient_of(open_access_in_backward(tensor, pool_), output_scale_);
}

void Engine::empty_partition_cache() {
  if (pool_) pool_->empty_cache();
}

at::ScalarType Engine::torch_autocast_dtype() const {
  if (!autocast_) raise<UsageError>(kEngineWhere, "torch_autocast_dtype(): torch_autocast.enabled is false");
  return *autocast_;
}

at::Tensor Engine::scale(const at::Tensor& loss) {
  const double loss_scale = require_optimizer("scale").loss_scale();
  if (!loss.defined()) raise<UsageError>(kEngineWhere, "scale() got an undefined tensor");
  return scale_loss(loss, loss_scale);
}

void Engine::note_backward() { ++backwards_since_update_; }

void Engine::finish_backward() {
  zero::ZeroOptimizer& optimizer = require_optimizer("finish_backward");
  if (!optimizer.backward_is_open()) return;
  optimizer.finish_backward();
  note_backward();
  refresh_boundary();
}

void Engine::allreduce_gradients(std::optional<int64_t> bucket_size) {
  zero::ZeroOptimizer& optimizer = require_optimizer("allreduce_gradients");
  finish_backward();
  if (bucket_size) optimizer.set_bucket_numel(*bucket_size);
  if (is_gradient_accumulation_boundary()) optimizer.complete_window();
  refresh_boundary();
}

bool Engine::is_gradient_accumulation_boundary() const {
  if (!config_.managed_gradient_accumulation) return in_step_;
  if (boundary_override_) return *boundary_override_;
  return (micro_steps_ + 1) % config_.gradient_accumulation_steps == 0;
}

void Engine::set_gradient_accumulation_boundary(std::optional<bool> is_boundary) {
  if (!config_.managed_gradient_accumulation) {
    raise<UsageError>(
        kEngineWhere,
        "set_gradient_accumulation_boundary() needs managed_gradient_accumulation; without it every "
        "step() is a boundary");
  }
  boundary_override_ = is_boundary;
  refresh_boundary();
}

void Engine::step(const StepOptions& options) {
  require_optimizer("step");
  if (in_no_sync_) raise<UsageError>(kEngineWhere, "step() inside of no_sync(): end its scope first");
  if (optimizer_->is_paused()) {
    raise<UsageError>(kEngineWhere, "step() inside of coalesce_grad_reduction(): end its scope first");
  }
  if (lr_scheduler_) lr_scheduler_->check_step(options.last_batch_iteration);
  note_memory("before step");
  {
    const auto timing = time_part(profile::StepPart::kStep);
    optimizer_->tell_ranks();
    finish_backward();
    step_applied_ = false;
    in_step_ = true;
    const bool is_boundary = is_gradient_accumulation_boundary();
    in_step_ = false;
    if (is_boundary) {
      if (backwards_since_update_ == 0)
        raise<UsageError>(kEngineWhere, "step() at an accumulation boundary without any backward()");
      model_changes_->warn();
      optimizer_->complete_window();
      take_model_step(options);
      if (preemption_) preemption_->end_step(group_);
    }
    ++micro_steps_;
    refresh_boundary();
  }
  note_memory("after step");
  if (timers_) log::info(timers_->micro_step_line());
}

void Engine::take_model_step(const StepOptions& options) {
  const zero::StepResult result = optimizer_->step(global_steps_ + 1);
  optimizer_->zero_grad();
  step_applied_ = result.applied;
  if (!result.applied) {
    ++skipped_steps_;
  } else {
    grad_norm_ = result.grad_norm;
    if (lr_scheduler_) lr_scheduler_->step(options.last_batch_iteration);
  }
  ++global_steps_;
  // Unmanaged, a step has as many micro batches as there were backwards.
  const int64_t samples =
      config_.managed_gradient_accumulation
          ? config_.train_batch_size
          : config_.train_batch_size / config_.gradient_accumulation_steps * backwards_since_update_;
  global_samples_ += samples;
  backwards_since_update_ = 0;
  if (throughput_) throughput_->end_step(samples);
  if (config_.steps_per_print && global_steps_ % *config_.steps_per_print == 0) report_progress();
}

void Engine::report_throughput() {
  const auto rates = throughput_ ? throughput_->read() : std::nullopt;
  if (!rates) return;
  std::ostringstream line;
  line << std::fixed << std::setprecision(2)
       << "epoch=" << (loader_position_ ? std::max<int64_t>(loader_position_->epoch, 0) : 0)
       << "/micro_step=" << micro_steps_ + 1 << "/global_step=" << global_steps_
       << ", RunningAvgSamplesPerSec=" << rates->average << ", CurrSamplesPerSec=" << rates->current << ", "
       << profile::memory_in_use();
  log::info(line.str());
}

void Engine::report_progress() {
  std::ostringstream line;
  line << "step=" << global_steps_ << ", skipped=" << skipped_steps_ << ", lr=[";
  const char* separator = "";
  for (const double lr : get_lr()) line << std::exchange(separator, ", ") << lr;
  line << "], mom=[";
  separator = "";
  for (const auto& [first, second] : get_mom()) {
    line << std::exchange(separator, ", ") << "(" << first << ", " << second << ")";
  }
  line << "]";
  log::info(line.str());
  report_throughput();
  if (timers_) log::info(timers_->global_line());
}

void Engine::zero_grad() {
  if (optimizer_) optimizer_->zero_grad();
  reset_gradients(model_);
  backwards_since_update_ = 0;
}

void Engine::compile(const CompileOptions& options) {
  if (!options.schedule.is_null()) {
    raise<NotSupportedError>(kEngineWhere,
                             "compile(): schedule: passes over a compiled graph come with deepcompile, ",
                             "which does not exist yet; leave it out");
  }
  log::info("[engine] compile(backend = \"", options.backend,
            "\"): the model is C++ that the compiler has optimized already; nothing is traced or generated");
  is_compiled_ = true;
}

void Engine::destroy(const DestroyOptions& options) {
  reload_states();
  std::vector<at::Tensor> params;
  for (const NamedTensor& param : model_.parameters) params.push_back(param.tensor);
  if (pool_) zero::check_unused(params);
  if (optimizer_ && optimizer_->backward_is_open()) optimizer_->finish_backward();
  wait_for_checkpoint();
  if (optimizer_) reset_gradients(model_);
  let_go_of_model();
  lr_scheduler_.reset();
  optimizer_.reset();
  claims_.release();
  params_.reset();
  *output_scale_ = {};
  is_destroyed_ = true;
  if (!pool_ || options.keep_partitioned) return;
  zero::make_whole(params);
  pool_.reset();
}

void Engine::train(bool mode) {
  model_.set_training(mode);
  is_training_ = mode;
  if (throughput_) mode ? throughput_->resume() : throughput_->pause();
}

std::vector<double> Engine::get_lr() const {
  std::vector<double> rates;
  for (const auto& group : require_optimizer("get_lr").param_groups()) rates.push_back(group.lr());
  return rates;
}

std::vector<std::pair<double, double>> Engine::get_mom() const {
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

std::vector<std::string> Engine::get_type() const {
  std::vector<std::string> types;
  for (const auto& group : require_optimizer("get_type").param_groups()) {
    types.push_back(group.options.contains("type") ? group.options.text("type") : std::string());
  }
  return types;
}

void Engine::set_lr(double lr) {
  zero::ZeroOptimizer& optimizer = require_optimizer("set_lr");
  optim::check_lr("engine.set_lr", lr);
  for (auto& group : optimizer.param_groups()) group.set_lr(lr);
  optimizer.tell_ranks();
}

double Engine::loss_scale() const { return optimizer_ ? optimizer_->loss_scale() : 1.0; }

zero::MemoryBytes Engine::memory() const {
  if (optimizer_) return optimizer_->memory();
  zero::MemoryBytes memory;
  for (const auto& param : model_.parameters) {
    memory.parameters += zero::held_bytes(param.tensor);
    memory.on_disk += zero::disk_bytes(param.tensor);
  }
  if (params_) memory.swap_buffers = params_->buffer_bytes();
  return memory;
}

std::tuple<int64_t, int64_t, int64_t> Engine::get_batch_info() const {
  return {train_batch_size(), train_micro_batch_size_per_gpu(), gradient_accumulation_steps()};
}

void Engine::set_train_batch_size(int64_t size) {
  const int64_t unit = config_.train_micro_batch_size_per_gpu * dp_world_size();
  if (size < unit || size % unit != 0) {
    raise<UsageError>(kEngineWhere, "set_train_batch_size(", size,
                      "): expected a positive multiple of micro batch ",
                      config_.train_micro_batch_size_per_gpu, " * ", dp_world_size(), " ranks");
  }
  config_.gradient_accumulation_steps = size / unit;
  config_.train_batch_size = size;
  refresh_boundary();
}

void Engine::set_train_micro_batch_size(int64_t size) {
  const int64_t largest =
      std::numeric_limits<int64_t>::max() / config_.gradient_accumulation_steps / dp_world_size();
  if (size < 1 || size > largest) {
    raise<UsageError>(kEngineWhere, "set_train_micro_batch_size(", size, "): expected 1 to ", largest);
  }
  config_.train_micro_batch_size_per_gpu = size;
  config_.train_batch_size = size * config_.gradient_accumulation_steps * dp_world_size();
  refresh_boundary();
}

}  // namespace deepspeed
