#include "deepspeed/accelerate/accelerator/scheduler.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <torch/optim/optimizer.h>

#include "deepspeed/base/error.h"

namespace deepspeed::accelerate {
namespace {

std::vector<double> rates_of(torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void set_rates(torch::optim::Optimizer& optimizer, const std::vector<double>& rates) {
  for (size_t i = 0; i < rates.size(); ++i) optimizer.param_groups()[i].options().set_lr(rates[i]);
}

/// Reaches the count of torch's schedules, which has no other way in.
struct StepCount : torch::optim::LRScheduler {
  static unsigned& of(torch::optim::LRScheduler& scheduler) { return scheduler.*(&StepCount::step_count_); }
};

}  // namespace

LambdaLR::LambdaLR(torch::optim::Optimizer& optimizer, Factor factor)
    : LRScheduler(optimizer), base_lrs_(rates_of(optimizer)), factor_(std::move(factor)) {
  std::vector<double> rates = base_lrs_;
  for (double& rate : rates) rate *= factor_(0);
  set_rates(optimizer, rates);
}

std::vector<double> LambdaLR::get_lrs() {
  std::vector<double> rates = base_lrs_;
  for (double& rate : rates) rate *= factor_(int64_t{step_count_} + 1);
  return rates;
}

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
    : lr(optimizer->lr),
      total_num_steps(total_num_steps),
      warmup_num_steps(warmup_num_steps),
      lr_scheduler_callable(std::move(lr_scheduler_callable)) {}

DummyScheduler::DummyScheduler(std::shared_ptr<torch::optim::Optimizer> optimizer,
                               std::optional<int64_t> total_num_steps, int64_t warmup_num_steps,
                               optim::LrSchedulerSource lr_scheduler_callable)
    : lr(optimizer->defaults().get_lr()),
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
      base_lrs_(rates_of(*optimizer_->torch_optimizer())),
      last_epoch_(StepCount::of(*own_)) {
  if (const auto* lambda = dynamic_cast<const LambdaLR*>(own_.get())) base_lrs_ = lambda->base_lrs();
}

void AcceleratedScheduler::step() {
  if (of_engine_) return;
  int times = 1;
  if (step_with_optimizer_) {
    if (!gradient_state_->sync_gradients() || optimizer_->step_was_skipped()) return;
    times = steps_at_once_;
  }
  for (int i = 0; i < times; ++i) own_->step();
  last_epoch_ += times;
}

std::vector<double> AcceleratedScheduler::get_last_lr() const {
  return of_engine_ ? of_engine_->get_last_lr() : rates_of(*optimizer_->torch_optimizer());
}

Json AcceleratedScheduler::state_dict() const {
  if (of_engine_) return of_engine_->state_dict();
  Json lambdas = Json::array();
  for (size_t i = 0; i < base_lrs_.size(); ++i) lambdas.push_back(nullptr);
  return {{"base_lrs", base_lrs_},
          {"last_epoch", last_epoch_},
          {"_step_count", last_epoch_ + 1},
          {"_last_lr", get_last_lr()},
          {"lr_lambdas", lambdas}};
}

void AcceleratedScheduler::load_state_dict(const Json& state) {
  if (of_engine_) {
    of_engine_->load_state_dict(state);
    return;
  }
  const int64_t last_epoch = state.value("last_epoch", int64_t{-1});
  if (last_epoch < 0)
    raise<UsageError>("the state of a schedule has no `last_epoch`, expected the number of its steps");
  StepCount::of(*own_) = 0;
  set_rates(*optimizer_->torch_optimizer(), base_lrs_);
  for (last_epoch_ = 0; last_epoch_ < last_epoch; ++last_epoch_) own_->step();
  // Before the first step a schedule may have set other rates than the first ones.
  if (const auto rates = state.find("_last_lr");
      rates != state.end() && rates->size() == base_lrs_.size() && last_epoch == 0)
    set_rates(*optimizer_->torch_optimizer(), rates->get<std::vector<double>>());
}

}  // namespace deepspeed::accelerate
