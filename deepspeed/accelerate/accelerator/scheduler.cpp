// Schedules are stepped by the engine, or by the program as many times as there are ranks, as Accelerate does.
#include "deepspeed/accelerate/accelerator/scheduler.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <torch/optim/optimizer.h>

#include "deepspeed/base/error.h"

namespace deepspeed::accelerate {

std::shared_ptr<LambdaLR> get_scheduler(const std::string& name, torch::optim::Optimizer& optimizer,
                                        int64_t num_warmup_steps, std::optional<int64_t> num_training_steps) {
  const auto warmup = [num_warmup_steps](int64_t step) {
    return static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, num_warmup_steps));
  };
  if (name == "constant") return std::make_shared<LambdaLR>(optimizer, [](int64_t) { return 1.0; });
  if (name == "constant_with_warmup") {
    return std::make_shared<LambdaLR>(
        optimizer, [=](int64_t step) { return step < num_warmup_steps ? warmup(step) : 1.0; });
  }
  if (name != "linear" && name != "cosine")
    raise<UsageError>("no schedule has the name '", name,
                      "', expected constant, constant_with_warmup, linear or cosine");
  if (!num_training_steps)
    raise<UsageError>(name, " requires `num_training_steps`, please provide that argument.");
  const int64_t total = *num_training_steps;
  const auto rest = static_cast<double>(std::max<int64_t>(1, total - num_warmup_steps));
  if (name == "linear") {
    return std::make_shared<LambdaLR>(optimizer, [=](int64_t step) {
      return step < num_warmup_steps ? warmup(step) : std::max(0.0, static_cast<double>(total - step) / rest);
    });
  }
  return std::make_shared<LambdaLR>(optimizer, [=](int64_t step) {
    if (step < num_warmup_steps) return warmup(step);
    const double progress = static_cast<double>(step - num_warmup_steps) / rest;
    return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * 0.5 * 2.0 * progress)));
  });
}

DummyScheduler::DummyScheduler(std::shared_ptr<DummyOptim> optimizer, std::optional<int64_t> total_num_steps,
                               int64_t warmup_num_steps, optim::LrSchedulerSource lr_scheduler_callable)
    : lr(optimizer ? optimizer->lr : 0.0),
      total_num_steps(total_num_steps),
      warmup_num_steps(warmup_num_steps),
      lr_scheduler_callable(std::move(lr_scheduler_callable)) {}

DummyScheduler::DummyScheduler(std::shared_ptr<torch::optim::Optimizer> optimizer,
                               std::optional<int64_t> total_num_steps, int64_t warmup_num_steps,
                               optim::LrSchedulerSource lr_scheduler_callable)
    : lr(optimizer ? optimizer->defaults().get_lr() : 0.0),
      total_num_steps(total_num_steps),
      warmup_num_steps(warmup_num_steps),
      lr_scheduler_callable(std::move(lr_scheduler_callable)) {}

AcceleratedScheduler::AcceleratedScheduler(std::shared_ptr<torch::optim::LRScheduler> own,
                                           std::shared_ptr<AcceleratedOptimizer> optimizer,
                                           std::shared_ptr<GradientState> gradient_state,
                                           bool step_with_optimizer, int steps_at_once)
    : own_(std::move(own)),
      optimizer_(std::move(optimizer)),
      gradient_state_(std::move(gradient_state)),
      step_with_optimizer_(step_with_optimizer),
      steps_at_once_(steps_at_once),
      base_lrs_(optim::base_rates_of(*own_)) {}

void AcceleratedScheduler::step() {
  if (of_engine_) return;
  int times = 1;
  if (step_with_optimizer_) {
    if (!gradient_state_->sync_gradients() || optimizer_->step_was_skipped()) return;
    times = steps_at_once_;
  }
  for (int i = 0; i < times; ++i) own_->step();
}

std::vector<double> AcceleratedScheduler::get_last_lr() const {
  return of_engine_ ? of_engine_->get_last_lr() : optim::rates_of(*own_);
}

Json AcceleratedScheduler::state_dict() const {
  return of_engine_ ? of_engine_->state_dict() : optim::torch_schedule_state(*own_, base_lrs_);
}

void AcceleratedScheduler::load_state_dict(const Json& state) {
  if (of_engine_) {
    of_engine_->load_state_dict(state);
    return;
  }
  auto& groups = optimizer_->torch_optimizer()->param_groups();
  const std::vector<double> rates = optim::load_torch_schedule_state(*own_, state, groups.size());
  for (size_t i = 0; i < rates.size(); ++i) groups[i].options().set_lr(rates[i]);
}

}  // namespace deepspeed::accelerate
