// torch's schedules write rates into a torch optimizer; this copies them into the engine's groups.
//
// A schedule does not say which optimizer it drives, so drives() tries it out: a rate written into the
// optimizer must show up in what the schedule reads. step() copies the groups' rates into the torch
// optimizer, in case the program has set one, steps the schedule, and copies the rates back. The state is the
// step counter and the rates (lambda_lr.h).
#include <cstdint>
#include <optional>
#include <utility>

#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/schedules/lambda_lr.h"
#include "deepspeed/optim/schedules/lr_scheduler_adapter.h"

namespace deepspeed::optim {
namespace {

// Returns whether a schedule drives this optimizer. The schedule does not say so, but a changed rate shows
// it.
bool drives(const torch::optim::LRScheduler& scheduler, torch::optim::Optimizer& optimizer) {
  auto& options = optimizer.param_groups().front().options();
  const double rate = options.get_lr();
  const double other = rate + 1.0;
  options.set_lr(other);
  const auto seen = rates_of(scheduler);
  options.set_lr(rate);
  return !seen.empty() && seen.front() == other && rates_of(scheduler).front() == rate;
}

class TorchLrScheduler : public LrScheduler {
 public:
  TorchLrScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                   std::shared_ptr<torch::optim::Optimizer> optimizer, std::vector<ParamGroup>& groups)
      : scheduler_(std::move(scheduler)),
        optimizer_(std::move(optimizer)),
        groups_(groups),
        base_lrs_(base_rates_of(*scheduler_)) {
    read_rates();
  }

  void check_step(std::optional<int64_t> last_batch_iteration) const override {
    refuse_step_by_number(last_batch_iteration);
  }

  void step(std::optional<int64_t> last_batch_iteration = {}) override {
    check_step(last_batch_iteration);
    std::vector<double> rates;
    for (const ParamGroup& group : groups_) rates.push_back(group.lr());
    write_torch_rates(rates);
    scheduler_->step();
    read_rates();
  }

  std::vector<double> get_lr() const override { return rates_of(*scheduler_); }
  std::vector<double> get_last_lr() const override { return rates_of(*scheduler_); }

  Json state_dict() const override { return torch_schedule_state(*scheduler_, base_lrs_); }

  void load_state_dict(const Json& state) override {
    write_torch_rates(load_torch_schedule_state(*scheduler_, state, groups_.size()));
    read_rates();
  }

 private:
  void write_torch_rates(const std::vector<double>& rates) {
    auto& torch_groups = optimizer_->param_groups();
    for (size_t i = 0; i < torch_groups.size(); ++i) torch_groups[i].options().set_lr(rates[i]);
  }

  void read_rates() {
    const std::vector<double> rates = rates_of(*scheduler_);
    for (size_t i = 0; i < groups_.size(); ++i) groups_[i].set_lr(rates[i]);
  }

  std::shared_ptr<torch::optim::LRScheduler> scheduler_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<ParamGroup>& groups_;
  std::vector<double> base_lrs_;
};

class StandInOptions : public torch::optim::OptimizerCloneableOptions<StandInOptions> {
 public:
  explicit StandInOptions(double lr) : lr_(lr) {}
  double get_lr() const override { return lr_; }
  void set_lr(const double lr) override { lr_ = lr; }

 private:
  double lr_;
};

class StandInOptimizer : public torch::optim::Optimizer {
 public:
  using torch::optim::Optimizer::Optimizer;
  at::Tensor step(LossClosure) override {
    raise<UsageError>(
        "the optimizer that a schedule was made over is stepped only by the engine; call engine->step()");
  }
};

}  // namespace

void refuse_step_by_number(std::optional<int64_t> last_batch_iteration) {
  if (!last_batch_iteration) return;
  raise<UsageError>("step(last_batch_iteration = ", *last_batch_iteration,
                    "): torch's schedules go one step at a time; leave the number out");
}

std::shared_ptr<LrScheduler> adapt_torch_scheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                                                   std::shared_ptr<torch::optim::Optimizer> optimizer,
                                                   std::vector<ParamGroup>& groups) {
  if (optimizer == nullptr) {
    raise<UsageError>(
        "a schedule of torch drives a torch optimizer, and none was passed to initialize(); pass that "
        "optimizer too, or a callable that makes the schedule over the torch::optim::Optimizer& it is given");
  }
  if (optimizer->param_groups().size() != groups.size() || !drives(*scheduler, *optimizer)) {
    raise<UsageError>(
        "the torch schedule drives another optimizer than the one passed with it; make it over that one");
  }
  return std::make_shared<TorchLrScheduler>(std::move(scheduler), std::move(optimizer), groups);
}

std::shared_ptr<torch::optim::Optimizer> stand_in_optimizer(const std::vector<ParamGroup>& groups) {
  if (groups.empty()) raise<UsageError>("the optimizer has no parameter group, expected at least one");
  const std::vector<torch::optim::OptimizerParamGroup> empty(
      groups.size(), torch::optim::OptimizerParamGroup(std::vector<at::Tensor>{}));
  auto optimizer =
      std::make_shared<StandInOptimizer>(empty, std::make_unique<StandInOptions>(groups.front().lr()));
  // Rates are set after construction, not with the groups: torch 2.15 keeps a group's options only for its
  // own classes.
  for (size_t i = 0; i < groups.size(); ++i) optimizer->param_groups()[i].options().set_lr(groups[i].lr());
  return optimizer;
}

void refuse_plateau_scheduler() {
  raise<NotSupportedError>(
      "ReduceLROnPlateauScheduler takes a metric with each step and hides its state, which no checkpoint "
      "could carry; step it in the program and give its rate to Engine::set_lr(), or pass a type of your own "
      "with get_lr(), step(), state_dict() and load_state_dict()");
}

}  // namespace deepspeed::optim
