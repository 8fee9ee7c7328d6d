// Implements backward() and step() for any kind of engine. It scales the loss and reduces gradients as the
// stage asks. At the accumulation boundary it advances parameters, schedule and counters. Method names are
// the engine's.
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

/// Drives a training. All calls but refresh(), is_boundary() and zero_grad() need an optimizer. Use it from
/// one thread at a time.
class StepDriver {
 public:
  /// Makes the driver of the training in `state`, which must outlive the driver.
  explicit StepDriver(TrainingState& state);
  ~StepDriver();
  StepDriver(const StepDriver&) = delete;
  StepDriver& operator=(const StepDriver&) = delete;

  const TrainingState& state() const { return state_; }
  /// Returns the scale that the model's output nodes apply to gradients (ForwardScope).
  const std::shared_ptr<OutputScale>& output_scale() const { return output_scale_; }
  /// Returns the timers, or null without wall_clock_breakdown.
  profile::StepTimers* timers() const { return timers_.get(); }
  /// Times a part of a training step until the scope ends, if timers are on.
  profile::StepTimers::Scope time_part(profile::StepPart part) const;
  /// Logs the memory in use if the config enables memory_breakdown.
  void log_memory(const char* when) const;

  /// Returns the graphs of the model's forwards, or null without cuda_graphs.
  GraphedForward* graphs() const { return graphs_.get(); }

  /// Returns the counter of the forwards' activations.
  const ActivationReport& activations() const { return activations_; }

  /// Passes the accumulation boundary and the loss scale to the optimizer and the output nodes. Call it after
  /// counters, batch or loss scale were changed from outside, for instance by load_checkpoint().
  void refresh();
  /// Returns whether the next step() updates the parameters.
  bool is_boundary() const;
  /// Fixes whether the next calls of step() are at the boundary. With std::nullopt the accumulation steps
  /// decide again. Throws UsageError without managed_gradient_accumulation.
  void set_boundary(std::optional<bool> is_boundary);

  /// Implements Engine::backward().
  at::Tensor backward(const at::Tensor& loss, const BackwardOptions& options);
  /// Returns `loss` with an unchanged value, to start a backward from. Its gradient is scaled as in
  /// backward().
  at::Tensor scaled_root(const at::Tensor& loss) const;
  /// Runs a backward or a part of one, and reduces the gradients that it produced. Opens the stage 3 access
  /// window and takes times, as backward() does. trains_parameters: warn if no parameter gets a gradient.
  void run_backward(const std::function<void()>& run, bool trains_parameters = true);
  /// Runs `work`, which produces gradients of the accumulation window, and records a failure. After a failure
  /// run_backward() and step() throw UsageError until zero_grad(), or until another backward if nothing else
  /// is in the window.
  void noting_failure(const std::function<void()>& work);
  /// Sets a function to call between the reduction of a window's gradients and the update. The function may
  /// change the gradients.
  void before_update(std::function<void()> change) { before_update_ = std::move(change); }
  /// Completes the reductions of a direct `loss.backward()`. Does nothing if there was none. If that backward
  /// failed, only records the failure, as noting_failure() does.
  void finish_backward();
  /// Implements Engine::allreduce_gradients().
  void allreduce_gradients(std::optional<int64_t> bucket_size);
  /// Ends a micro step. Returns the samples of the update, or nothing if it made none.
  std::optional<int64_t> step(const StepOptions& options);
  /// Drops the gradients of the accumulation window, and forgets a failed backward in it. A step() without
  /// another backward() then sees zeros.
  void zero_grad();

  /// Makes backwards only add to this rank's gradients, until end_no_sync(). See Engine::no_sync().
  void begin_no_sync();
  void end_no_sync();
  /// Postpones the reduction of gradients, which stay with the parameters. end_coalescing() reduces their sum
  /// once, or drops them.
  void begin_coalescing();
  void end_coalescing(bool reduces);

  /// Returns the norm of the last applied update. Nothing before the first, or if not computed.
  const std::optional<zero::GradNorm>& grad_norm() const { return grad_norm_; }

 private:
  zero::ZeroOptimizer& optimizer() const { return *state_.parts.optimizer; }
  const config::DeepSpeedConfig& config() const { return state_.parts.config; }
  int64_t update(const StepOptions& options);
  /// Returns whether a backward through the outputs failed or has not ended, since the last call.
  bool take_failure();
  void warn_of_no_gradient();
  /// Throws UsageError if a backward of this accumulation window has failed and left partial gradients.
  void require_whole_window(const char* call) const;
  /// Throws UsageError if this window has no gradient to step with. Gradients dropped by zero_grad() count as
  /// zeros.
  void require_gradients();
  /// Gives a new window the config's batch size if a setter has changed it.
  void begin_window();
  /// Returns whether the current accumulation window has gradients or micro steps.
  bool is_in_window() const;
  /// Warns once if an update uses more backwards than a window has. The program may have tried to drop the
  /// gradients of one in a way that does not change the gradient sums.
  void warn_of_more_backwards();

  TrainingState& state_;
  std::shared_ptr<OutputScale> output_scale_ = std::make_shared<OutputScale>();
  std::unique_ptr<profile::StepTimers> timers_;
  ActivationReport activations_;
  std::unique_ptr<GraphedForward> graphs_;       // null: not requested
  std::unique_ptr<ModelChanges> model_changes_;  // null: nothing is trained
  std::optional<zero::GradNorm> grad_norm_;
  std::optional<bool> boundary_override_;
  std::function<void()> before_update_;  // empty: nothing to call
  AccumulationWindow& window_ = state_.window;
  bool in_step_ = false;
  bool warned_of_more_backwards_ = false;
  bool warned_of_no_gradient_ = false;
  bool warned_of_dropped_ = false;
};

}  // namespace deepspeed
