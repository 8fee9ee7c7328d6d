#include "deepspeed/optim/schedules/lambda_lr.h"

#include <utility>

#include <torch/optim/optimizer.h>

#include "deepspeed/base/error.h"

namespace deepspeed::optim {
namespace {

// Names protected members of torch::optim::LRScheduler, for objects of any derived class.
struct Protected : torch::optim::LRScheduler {
  static constexpr auto kRates = &Protected::get_current_lrs;
  static constexpr auto kStepCount = &Protected::step_count_;
};

}  // namespace

LambdaLR::LambdaLR(torch::optim::Optimizer& optimizer, Factor factor)
    : LRScheduler(optimizer), base_lrs_(get_current_lrs()), factor_(std::move(factor)) {
  const double first = factor_(0);
  for (size_t i = 0; i < base_lrs_.size(); ++i)
    optimizer.param_groups()[i].options().set_lr(base_lrs_[i] * first);
}

std::vector<double> LambdaLR::get_lrs() {
  std::vector<double> rates = base_lrs_;
  for (double& rate : rates) rate *= factor_(int64_t{step_count_} + 1);
  return rates;
}

std::vector<double> rates_of(const torch::optim::LRScheduler& schedule) {
  return (schedule.*Protected::kRates)();
}

std::vector<double> base_rates_of(const torch::optim::LRScheduler& schedule) {
  const auto* lambda = dynamic_cast<const LambdaLR*>(&schedule);
  return lambda ? lambda->base_lrs() : rates_of(schedule);
}

Json torch_schedule_state(const torch::optim::LRScheduler& schedule, const std::vector<double>& base_lrs) {
  const int64_t steps = schedule.*Protected::kStepCount;
  return {{"base_lrs", base_lrs},
          {"last_epoch", steps},
          {"_step_count", steps + 1},  // Python counts the step that sets the first rates
          {"_last_lr", rates_of(schedule)},
          {"lr_lambdas", std::vector<Json>(base_lrs.size())}};
}

std::vector<double> load_torch_schedule_state(torch::optim::LRScheduler& schedule, const Json& state,
                                              size_t num_groups) {
  const auto find = [&](const char* name, const char* older) {
    const Json null;
    return state.is_object() ? state.value(name, state.value(older, null)) : null;
  };
  const Json steps = find("last_epoch", "step_count");
  const Json rates = find("_last_lr", "last_lr");
  const bool fits = steps.is_number_integer() && steps >= 0 && rates.is_array() && rates.size() == num_groups;
  if (!fits) {
    raise<CheckpointError>("the state ", state.dump(), " is not that of a torch schedule over ", num_groups,
                           " parameter groups: {\"last_epoch\": n, \"_last_lr\": [...]}");
  }
  schedule.*Protected::kStepCount = steps.get<unsigned>();
  return rates.get<std::vector<double>>();
}

}  // namespace deepspeed::optim
