// The driver does what backward() and step() do with a training, whichever engine they belong to: the loss is
// scaled, gradients are reduced as the stage asks, and at the accumulation boundary the parameters, the
// schedule and the counters move on. Method names are the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "deepspeed/engine/autograd/output_scale.h"
#include "deepspeed/engine/saving/training_state.h"
#include "deepspeed/engine/step/activation_report.h"
#include "deepspeed/engine/step/training_options.h"
#include "deepspeed/profile/step_timers.h"
#include "deepspeed/zero/update/grad_norm.h"

namespace deepspeed {

class GraphedForward;
class ModelChanges;

/// Drives a training. All calls but refresh(), is_boundary() and zero_grad() need an optimizer. One thread at
/// a time.
class StepDriver {
 public:
  /// Takes the training. `state` must outlive the driver.
  explicit StepDriver(TrainingState& state);
  ~StepDriver();
  StepDriver(const StepDriver&) = delete;
  StepDriver& operator=(const StepDriver&) = delete;

  const TrainingState& state() const { return state_; }
  /// Returns the scale that nodes on the model's outputs give to gradients (ForwardScope).
  const std::shared_ptr<OutputScale>& output_scale() const { return output_scale_; }
  /// Returns the timers, or null where the config does not ask for wall_clock_breakdown.
  profile::StepTimers* timers() const { return timers_.get(); }
  /// Measures a part of a training step until the end of the scope, where the config asks for it.
  profile::StepTimers::Scope time_part(profile::StepPart part) const;
  /// Logs the memory in use, where the config asks for memory_breakdown.
  void log_memory(const char* when) const;

  /// Returns the graphs of the model's forwards, or null where the config does not ask for cuda_graphs.
  GraphedForward* graphs() const { return graphs_.get(); }

  /// Returns what counts the activations of forwards.
  const ActivationReport& activations() const { return activations_; }

  /// Tells the optimizer and the outputs where the training is. Call it after counters, the batch or the
  /// loss scale were changed from outside, by load_checkpoint() for instance.
  void refresh();
  /// Says whether the step() to come updates the parameters.
  bool is_boundary() const;
  /// Overrides the boundary until it is set to nothing. Throws UsageError without
  /// managed_gradient_accumulation.
  void set_boundary(std::optional<bool> is_boundary);

  /// Does what Engine::backward() says.
  at::Tensor backward(const at::Tensor& loss, const BackwardOptions& options);
  /// Returns the root of a backward of this micro batch's loss, scaled as backward() does.
  at::Tensor scaled_root(const at::Tensor& loss) const;
  /// Runs `run`, a backward or a part of one over the model's parameters, as backward() runs autograd, and
  /// reduces the gradients that it gives. trains_parameters: whether no gradient at all is worth a warning.
  void run_backward(const std::function<void()>& run, bool trains_parameters = true);
  /// Runs what makes gradients of the window, which is of no use where it fails: until zero_grad(), or
  /// another backward where nothing else is in the window, run_backward() and step() are UsageErrors.
  void noting_failure(const std::function<void()>& work);
  /// Has `change` called between the reduction of a window's gradients and the update. It may change them.
  void before_update(std::function<void()> change) { before_update_ = std::move(change); }
  /// Completes the reductions of a direct `loss.backward()`; nothing where there was none, or it failed.
  void finish_backward();
  /// Does what Engine::allreduce_gradients() says.
  void allreduce_gradients(std::optional<int64_t> bucket_size);
  /// Ends a micro step. Returns the samples of the update, or nothing where it was none.
  std::optional<int64_t> step(const StepOptions& options);
  /// Forgets the gradients of the window, and a backward of it that failed. A step() without another
  /// backward() has zeros in their place.
  void zero_grad();

  /// Begins a time in which backwards only add to this rank's gradients, until end_no_sync():
  /// Engine::no_sync().
  void begin_no_sync();
  void end_no_sync();
  /// Begins a time in which backwards leave their gradients with the parameters. end_coalescing() reduces
  /// their sum once, or forgets them.
  void begin_coalescing();
  void end_coalescing(bool reduces);

  /// Returns the norm of the last update that was applied; nothing before the first and where it is not
  /// computed.
  const std::optional<zero::GradNorm>& grad_norm() const { return grad_norm_; }

 private:
  zero::ZeroOptimizer& optimizer() const { return *state_.parts.optimizer; }
  const config::DeepSpeedConfig& config() const { return state_.parts.config; }
  int64_t update(const StepOptions& options);
  /// Whether a direct `loss.backward()` has failed since this was asked.
  bool take_failure();
  void warn_of_no_gradient();
  /// Throws UsageError where a backward of this window has failed, which left a part of its gradients.
  void require_whole_window(const char* call) const;
  /// Throws UsageError where this window has no gradient to step with. Those that zero_grad() has dropped are
  /// zeros.
  void require_gradients();
  /// Lets the window that begins have the config's batch, where a setter has changed it.
  void begin_window();
  /// Returns whether gradients or micro steps are in the window under way.
  bool is_in_window() const;
  /// Says once that an update uses more backwards than a window has: the program may have dropped one by
  /// means that do not reach the sums.
  void warn_of_more_backwards();

  TrainingState& state_;
  std::shared_ptr<OutputScale> output_scale_ = std::make_shared<OutputScale>();
  std::unique_ptr<profile::StepTimers> timers_;
  ActivationReport activations_;
  std::unique_ptr<GraphedForward> graphs_;       // null: not asked for
  std::unique_ptr<ModelChanges> model_changes_;  // null: nothing is trained
  std::optional<zero::GradNorm> grad_norm_;
  std::optional<bool> boundary_override_;
  std::function<void()> before_update_;  // empty: nothing
  AccumulationWindow& window_ = state_.window;
  bool in_step_ = false;
  bool warned_of_more_backwards_ = false;
  bool warned_of_no_gradient_ = false;
  bool warned_of_dropped_ = false;
};

}  // namespace deepspeed
