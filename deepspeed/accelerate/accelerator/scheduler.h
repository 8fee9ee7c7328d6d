// Learning-rate schedules around prepare(): the stand-in for the config's, those of Transformers' names, and
// what a program gets back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/schedulers/lr_scheduler.h>

#include "deepspeed/accelerate/accelerator/gradient_state.h"
#include "deepspeed/accelerate/accelerator/optimizer.h"
#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/optim/schedules/lambda_lr.h"
#include "deepspeed/optim/schedules/lr_scheduler.h"
#include "deepspeed/optim/schedules/lr_scheduler_source.h"

namespace deepspeed::accelerate {

using optim::LambdaLR;

/// Makes a schedule of Transformers' name: constant, constant_with_warmup, linear or cosine. Throws UsageError
/// for another name, and for a missing number of training steps.
DEEPSPEED_API std::shared_ptr<LambdaLR> get_scheduler(const std::string& name,
                                                      torch::optim::Optimizer& optimizer,
                                                      int64_t num_warmup_steps = 0,
                                                      std::optional<int64_t> num_training_steps = {});

/// Stands for the schedule that the config's section `scheduler` describes, or that a callable makes.
struct DEEPSPEED_API DummyScheduler {
  /// `total_num_steps` and `warmup_num_steps` fill the section's "auto" values. They count the steps of one
  /// process. `lr_scheduler_callable` takes the optimizer, as InitializeOptions::lr_scheduler does.
  explicit DummyScheduler(std::shared_ptr<DummyOptim> optimizer, std::optional<int64_t> total_num_steps = {},
                          int64_t warmup_num_steps = 0,
                          optim::LrSchedulerSource lr_scheduler_callable = nullptr);
  explicit DummyScheduler(std::shared_ptr<torch::optim::Optimizer> optimizer,
                          std::optional<int64_t> total_num_steps = {}, int64_t warmup_num_steps = 0,
                          optim::LrSchedulerSource lr_scheduler_callable = nullptr);

  double lr = 0.0;  ///< the optimizer's, for warmup_max_lr
  std::optional<int64_t> total_num_steps;
  int64_t warmup_num_steps = 0;
  optim::LrSchedulerSource lr_scheduler_callable;
};

/// Is the schedule that prepare() returns.
class DEEPSPEED_API AcceleratedScheduler {
 public:
  /// Wraps a schedule that the engine steps.
  explicit AcceleratedScheduler(std::shared_ptr<optim::LrScheduler> of_engine)
      : of_engine_(std::move(of_engine)) {}
  /// Wraps the program's own schedule, which step() steps `steps_at_once` times when a step was taken.
  AcceleratedScheduler(std::shared_ptr<torch::optim::LRScheduler> own,
                       std::shared_ptr<AcceleratedOptimizer> optimizer,
                       std::shared_ptr<GradientState> gradient_state, bool step_with_optimizer,
                       int steps_at_once);

  /// Steps the program's schedule, unless gradients still accumulate or the step was left out. It does nothing
  /// if the engine steps the schedule.
  void step();
  std::vector<double> get_last_lr() const;
  bool is_of_engine() const { return of_engine_ != nullptr; }
  /// Returns what Python's torch.optim schedules hold: last_epoch, _step_count, base_lrs, _last_lr.
  Json state_dict() const;
  /// Restores a state that state_dict(), here or in Python, has returned. Throws CheckpointError for another.
  void load_state_dict(const Json& state);

 private:
  std::shared_ptr<optim::LrScheduler> of_engine_;
  std::shared_ptr<torch::optim::LRScheduler> own_;
  std::shared_ptr<AcceleratedOptimizer> optimizer_;
  std::shared_ptr<GradientState> gradient_state_;
  bool step_with_optimizer_ = true;
  int steps_at_once_ = 1;
  std::vector<double> base_lrs_;
};

}  // namespace deepspeed::accelerate
