// Runs windows of gradient accumulation. Each backward() scales the loss at its root, runs autograd inside of
// an access window (stage 3 gathers there), and completes the reductions that hooks started. At the boundary
// step() completes the rest, lets the optimizer update what this rank owns, and advances schedule and
// counters. A failed backward leaves partial gradients: the window then refuses step(), until zero_grad(), or
// until another backward if nothing else is in the window. After each call that advances the training,
// refresh() tells the reducer whether the next backward is at the boundary, and tells the output nodes which
// loss scale to apply. A batch size that was set in the meantime applies from the next window
// (begin_window()).
#include "deepspeed/engine/step/step_driver.h"

#include <utility>

#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/engine/guards/model_changes.h"
#include "deepspeed/engine/step/graphed_forward.h"
#include "deepspeed/profile/memory_report.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/param_access.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/step_agreement.h"
#include "deepspeed/zero/step_result.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed {
namespace {

void check_loss(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1 || !loss.requires_grad()) {
    raise<UsageError>("backward() takes a scalar loss that needs a gradient, got ",
                      loss.defined() ? message("a tensor of ", loss.numel(), " elements, requires_grad ",
                                               loss.requires_grad() ? "true" : "false")
                                     : std::string("an undefined tensor"));
  }
  if (is_scaled_loss(loss)) {
    raise<UsageError>("backward() of a loss that scale() has scaled, which backward() does too: ",
                      "pass the loss itself, or call backward() on the scaled loss");
  }
}

}  // namespace

StepDriver::StepDriver(TrainingState& state)
    : state_(state),
      activations_({.is_on = state.parts.optimizer && state.parts.groups.data.rank() == 0,
                    .every_step = state.parts.config.memory_breakdown}) {
  if (config().wall_clock_breakdown) timers_ = std::make_unique<profile::StepTimers>();
  if (state_.parts.optimizer) {
    model_changes_ = std::make_unique<ModelChanges>(state_.parts.model, optimizer().store());
    // A backward of another engine may reach this one's parameters. Both may share the loss, or the loss only
    // passes through this engine's model, as in a GAN. The gradients stay in the parameters at first, so that
    // the program may drop them.
    optimizer().gradients().leave_foreign(&is_in_backward_of_engine);
  }
  if (config().cuda_graphs.enabled)
    graphs_ = std::make_unique<GraphedForward>(state_.parts.model, config().cuda_graphs);
  refresh();
}

StepDriver::~StepDriver() = default;

profile::StepTimers::Scope StepDriver::time_part(profile::StepPart part) const {
  return {state_.is_training ? timers_.get() : nullptr, part};
}

void StepDriver::log_memory(const char* when) const {
  if (config().memory_breakdown) log::info("[engine] memory ", when, ": ", profile::memory_in_use());
}

void StepDriver::refresh() {
  begin_window();
  if (!state_.parts.optimizer) {
    output_scale_->loss_scale = output_scale_->accumulation_steps = 1.0;
    return;
  }
  optimizer().set_micro_step(state_.counters.micro_steps);
  optimizer().set_batch({.gradient_accumulation_steps = window_.steps,
                         .train_micro_batch_size_per_gpu = config().train_micro_batch_size_per_gpu,
                         .is_boundary = is_boundary(),
                         .averages_gradients = config().gradient_allreduce_op != "sum"});
  // Without managed accumulation a backward cannot tell whether it is the last, so step() reduces.
  optimizer().gradients().set_boundary(config().managed_gradient_accumulation && !state_.in_no_sync &&
                                       is_boundary());
  output_scale_->loss_scale = optimizer().loss_scale();
  output_scale_->accumulation_steps = static_cast<double>(window_.steps);
}

void StepDriver::begin_window() {
  const int64_t steps = config().gradient_accumulation_steps;
  if ((steps == window_.steps && config().train_batch_size == window_.train_batch_size) || is_in_window())
    return;
  if (steps != window_.steps) window_.first_micro_step = state_.counters.micro_steps;
  window_.steps = steps;
  window_.train_batch_size = config().train_batch_size;
}

bool StepDriver::is_in_window() const {
  const bool has_open = state_.parts.optimizer && optimizer().gradients().is_open();
  if (has_open || state_.counters.backwards_since_update > 0) return true;
  const bool counts = config().managed_gradient_accumulation && !boundary_override_;
  return counts && window_.done(state_.counters.micro_steps) > 0;
}

bool StepDriver::is_boundary() const {
  if (!config().managed_gradient_accumulation) return in_step_;
  if (boundary_override_) return *boundary_override_;
  return window_.done(state_.counters.micro_steps + 1) == 0;
}

void StepDriver::set_boundary(std::optional<bool> is_boundary) {
  if (!config().managed_gradient_accumulation) {
    raise<UsageError>(
        "set_gradient_accumulation_boundary() needs managed_gradient_accumulation; without it every step() "
        "is a boundary");
  }
  boundary_override_ = is_boundary;
  refresh();
}

at::Tensor StepDriver::backward(const at::Tensor& loss, const BackwardOptions& options) {
  check_loss(loss);
  finish_backward();  // completes a direct loss.backward() before this one
  const double divisor = options.scale_wrt_gas ? static_cast<double>(window_.steps) : 1.0;
  if (!options.allreduce_gradients) {
    if (const int64_t stage = config().zero_optimization.stage; stage >= 2) {
      raise<UsageError>("backward() with allreduce_gradients = false does not fit ZeRO stage ", stage,
                        ", which partitions gradients in every backward; use stage 0 or 1");
    }
    optimizer().gradients().set_boundary(false);
  }
  run_backward([&] {
    with_root_scale(loss, {optimizer().loss_scale(), divisor}).backward({}, options.retain_graph);
  });
  if (!state_.in_no_sync) ++state_.counters.backwards_in_sums;
  if (options.release_loss) return {};
  const c10::NoGradGuard no_grad;
  return divisor == 1.0 ? loss.detach() : loss.detach().div(divisor);
}

at::Tensor StepDriver::scaled_root(const at::Tensor& loss) const {
  check_loss(loss);
  return with_root_scale(loss, {optimizer().loss_scale(), static_cast<double>(window_.steps)});
}

void StepDriver::require_whole_window(const char* call) const {
  if (!optimizer().gradients().has_failed()) return;
  raise<UsageError>(call, "() after a backward() that failed: a part of its gradients is among those of the ",
                    "accumulation window; call zero_grad() on all ranks, which drops the gradients of the ",
                    "window, and go on with a forward");
}

void StepDriver::run_backward(const std::function<void()>& run, bool trains_parameters) {
  if (optimizer().gradients().has_failed() && state_.counters.backwards_since_update == 0) zero_grad();
  require_whole_window("backward");
  log_memory("before backward");
  optimizer().gradients().take_host_time();  // discards the time of earlier steps
  {
    const auto timing = time_part(profile::StepPart::kBackward);
    optimizer().tell_ranks();
    const c10::AutoGradMode with_grad(true);
    {
      const auto inner = time_part(profile::StepPart::kBackwardInner);
      std::optional<zero::ParameterAccess> access;
      if (state_.parts.pool) access.emplace(state_.parts.pool, zero::AccessMode::kBackward);
      const zero::GradReducer::Announcement announcement(optimizer().gradients());
      noting_failure(run);
      if (trains_parameters) warn_of_no_gradient();
    }
    if (timers_ && state_.is_training) {
      timers_->move(profile::StepPart::kBackwardInner, profile::StepPart::kBackwardAllreduce,
                    optimizer().gradients().take_host_time());
    }
    const auto reductions = time_part(profile::StepPart::kBackwardAllreduce);
    noting_failure([&] { optimizer().gradients().finish_backward(); });
  }
  ++state_.counters.backwards_since_update;
  refresh();
  log_memory("after backward");
}

void StepDriver::noting_failure(const std::function<void()>& work) {
  // Once super_offload's step has begun, every gradient is refused, so the window stays complete.
  const bool has_step_begun = optimizer().state().has_begun();
  try {
    work();
  } catch (...) {
    if (!has_step_begun) optimizer().gradients().note_failure();
    take_failure();
    refresh();
    throw;
  }
}

bool StepDriver::take_failure() {
  const auto outcome = std::exchange(output_scale_->outcome, std::make_shared<BackwardOutcome>());
  return outcome->has_failed || outcome->num_open > 0;
}

// A backward without gradients counts, as in DeepSpeed. A batch need not use a rank's part of the model.
void StepDriver::warn_of_no_gradient() {
  const zero::GradReducer& gradients = optimizer().gradients();
  if (warned_of_no_gradient_ || gradients.is_open() || gradients.is_paused()) return;
  warned_of_no_gradient_ = true;
  log::warning(
      "[engine] backward() gave no parameter of the engine a gradient, so that step() sees zeros of ",
      "this rank: does the loss come from this engine's forward()? It counts as a backward; this is said ",
      "once");
}

void StepDriver::finish_backward() {
  zero::GradReducer& gradients = optimizer().gradients();
  gradients.forget_dropped();
  const int num_direct = output_scale_->outcome->num_direct.exchange(0);
  const bool has_failed = take_failure();
  if (!gradients.is_open() || gradients.has_failed()) return;
  if (has_failed) return gradients.note_failure();
  gradients.finish_backward();
  ++state_.counters.backwards_since_update;
  if (!state_.in_no_sync) state_.counters.backwards_in_sums += num_direct;
  refresh();
}

void StepDriver::allreduce_gradients(std::optional<int64_t> bucket_size) {
  finish_backward();
  require_whole_window("allreduce_gradients");
  if (bucket_size) optimizer().gradients().set_bucket_numel(*bucket_size);
  if (is_boundary()) optimizer().gradients().complete_window();
  refresh();
}

std::optional<int64_t> StepDriver::step(const StepOptions& options) {
  if (state_.in_no_sync)
    raise<UsageError>(
        "It is illegal to call Engine.step() inside no_sync context manager: end its scope first");
  if (optimizer().gradients().is_paused())
    raise<UsageError>("step() inside coalesce_grad_reduction(): end its scope first, as with no_sync()");
  const auto& schedule = state_.parts.lr_scheduler;
  if (schedule) schedule->check_step(options.last_batch_iteration);
  log_memory("before step");
  std::optional<int64_t> samples;
  {
    const auto timing = time_part(profile::StepPart::kStep);
    optimizer().tell_ranks();
    finish_backward();
    require_whole_window("step");
    state_.counters.step_applied = false;
    in_step_ = true;
    const bool updates = is_boundary();
    in_step_ = false;
    if (updates) {
      require_gradients();
      model_changes_->warn();
      warn_of_more_backwards();
      optimizer().gradients().complete_window();
      if (before_update_) before_update_();
      samples = update(options);
    }
    ++state_.counters.micro_steps;
    refresh();
  }
  log_memory("after step");
  return samples;
}

void StepDriver::require_gradients() {
  if (state_.counters.backwards_since_update > 0 || optimizer().gradients().take_given_grads()) return;
  if (!state_.counters.dropped_backwards)
    raise<UsageError>("step() at an accumulation boundary without any backward() since the last step: call ",
                      "backward(loss) of this engine before each step()");
  if (!std::exchange(warned_of_dropped_, true) && state_.parts.groups.all.rank() == 0)
    log::warning(
        "[engine] step() after zero_grad() has dropped the gradients of all backwards since the ",
        "last step: it sees zeros, by which momentum and weight decay still move parameters; this is ",
        "said once");
  optimizer().gradients().finish_backward();  // everything missing counts as zeros
}

// Stage 0 needs no warning: there the engine sees the program's changes to the parameters' grads.
void StepDriver::warn_of_more_backwards() {
  const int64_t made = std::exchange(state_.counters.backwards_in_sums, 0);
  const int64_t stage = config().zero_optimization.stage;
  if (warned_of_more_backwards_ || stage == 0 || made <= window_.steps || boundary_override_ ||
      !config().managed_gradient_accumulation)
    return;
  warned_of_more_backwards_ = true;
  if (state_.parts.groups.all.rank() != 0) return;
  log::warning("[engine] step() uses the gradients of ", made,
               " backwards, where gradient_accumulation_steps is ", window_.steps,
               ". If one of them was to be dropped: at zero_optimization.stage ", stage,
               " gradients leave their parameters at once, so that zero_grad() of the module and setting a "
               "parameter's grad to nothing do not drop them, but zero_grad() of the engine does. This is "
               "logged once");
}

int64_t StepDriver::update(const StepOptions& options) {
  RunCounters& counters = state_.counters;
  zero::StepResult result = optimizer().step(counters.global_steps + 1);
  optimizer().zero_grad();
  activations_.end_step();
  counters.step_applied = result.applied;
  if (!result.applied) {
    ++counters.skipped_steps;
  } else {
    grad_norm_ = std::move(result.grad_norm);
    if (state_.parts.lr_scheduler) state_.parts.lr_scheduler->step(options.last_batch_iteration);
  }
  ++counters.global_steps;
  // Without managed accumulation a step has one micro batch per backward.
  const int64_t samples = config().managed_gradient_accumulation
                              ? window_.train_batch_size
                              : window_.train_batch_size / window_.steps * counters.backwards_since_update;
  counters.global_samples += samples;
  counters.backwards_since_update = 0;
  counters.dropped_backwards = false;
  return samples;
}

void StepDriver::zero_grad() {
  RunCounters& counters = state_.counters;
  if (state_.parts.optimizer) {
    const zero::GradReducer& gradients = optimizer().gradients();
    const bool has_any = counters.backwards_since_update > 0 || gradients.is_open() || gradients.has_failed();
    optimizer().zero_grad();
    counters.dropped_backwards = counters.dropped_backwards || has_any;
  }
  for (const NamedTensor& param : state_.parts.model.parameters) param.tensor.mutable_grad().reset();
  if (state_.parts.optimizer) optimizer().gradients().forget_failure();
  take_failure();
  counters.backwards_since_update = counters.backwards_in_sums = 0;
  refresh();
}

void StepDriver::begin_no_sync() {
  if (const int64_t stage = config().zero_optimization.stage; stage >= 2) {
    raise<UsageError>(
        "no_sync context manager is incompatible with ZeRO stage ", stage,
        ", which partitions gradients in every backward; use stage 0 or 1, or coalesce_grad_reduction()");
  }
  if (state_.in_no_sync)
    raise<UsageError>("no_sync context manager reentry is unsupported: end the outer scope first");
  if (state_.parts.optimizer && optimizer().gradients().is_paused())
    raise<UsageError>(
        "no_sync() inside coalesce_grad_reduction(): nested scopes are unsupported, end the outer one");
  state_.in_no_sync = true;
  refresh();
}

void StepDriver::end_no_sync() {
  if (state_.parts.optimizer) finish_backward();  // completes a direct loss.backward()
  state_.in_no_sync = false;
  refresh();
}

void StepDriver::begin_coalescing() {
  if (!config().managed_gradient_accumulation)
    raise<UsageError>("coalesce_grad_reduction() needs managed_gradient_accumulation");
  if (state_.in_no_sync)
    raise<UsageError>(
        "coalesce_grad_reduction() inside no_sync(): nested scopes are unsupported, end the outer one");
  if (optimizer().gradients().is_paused())
    raise<UsageError>(
        "coalesce_grad_reduction() inside coalesce_grad_reduction(): nested scopes are unsupported");
  finish_backward();
  require_whole_window("coalesce_grad_reduction");
  optimizer().gradients().pause();
}

void StepDriver::end_coalescing(bool reduces) {
  if (reduces) {
    if (take_failure()) optimizer().gradients().note_failure();
    refresh();
    optimizer().gradients().resume();
    ++state_.counters.backwards_since_update;
  } else {
    optimizer().gradients().resume_without_gradients();
  }
  refresh();
}

}  // namespace deepspeed
