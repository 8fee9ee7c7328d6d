#include "deepspeed/optim/schedules/chained_lr.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/schedules/lr_scheduler_adapter.h"

namespace deepspeed::optim {
namespace {

bool is_rate_of_each_group(const Json& state, const char* key, size_t num_groups) {
  if (!state.contains(key) || !state[key].is_array() || state[key].size() != num_groups) return false;
  return std::ranges::all_of(state[key], [](const Json& value) { return value.is_number(); });
}

}  // namespace

LrRule step_lr(int64_t step_size, double gamma) {
  return [=](double rate, double, int64_t step) {
    return step == 0 || step % step_size != 0 ? rate : rate * gamma;
  };
}

LrRule multi_step_lr(std::vector<int64_t> milestones, double gamma) {
  return [milestones = std::move(milestones), gamma](double rate, double, int64_t step) {
    return rate * std::pow(gamma, std::ranges::count(milestones, step));
  };
}

LrRule constant_lr(double factor, int64_t total_iters) {
  return [=](double rate, double, int64_t step) {
    if (step == 0) return rate * factor;
    return step == total_iters ? rate / factor : rate;
  };
}

LrRule linear_lr(double start_factor, double end_factor, int64_t total_iters) {
  return [=](double rate, double, int64_t step) {
    if (step == 0) return rate * start_factor;
    if (step > total_iters) return rate;
    const double change = end_factor - start_factor;
    const double before =
        static_cast<double>(total_iters) * start_factor + static_cast<double>(step - 1) * change;
    return rate * (1 + change / before);
  };
}

LrRule exponential_lr(double gamma) {
  return [=](double rate, double, int64_t step) { return step == 0 ? rate : rate * gamma; };
}

LrRule polynomial_lr(int64_t total_iters, double power) {
  return [=](double rate, double, int64_t step) {
    if (step == 0 || step > total_iters) return rate;
    const double total = static_cast<double>(total_iters), now = static_cast<double>(step);
    return rate * std::pow((total - now) / (total - now + 1), power);
  };
}

LrRule cosine_annealing_lr(int64_t t_max, double eta_min) {
  return [=](double rate, double base, int64_t step) {
    const double unit = std::numbers::pi / static_cast<double>(t_max);
    if (step == 0) return rate;
    // If the last rate was eta_min, the rule has nothing to multiply.
    if ((step - 1 - t_max) % (2 * t_max) == 0) return rate + (base - eta_min) * (1 - std::cos(unit)) / 2;
    const double now = 1 + std::cos(unit * static_cast<double>(step));
    const double before = 1 + std::cos(unit * static_cast<double>(step - 1));
    return now / before * (rate - eta_min) + eta_min;
  };
}

ChainedLr::ChainedLr(std::vector<ParamGroup>& groups, LrRule rule) : groups_(groups), rule_(std::move(rule)) {
  if (groups.empty()) raise<UsageError>("the optimizer has no parameter group, expected at least one");
  for (const ParamGroup& group : groups) base_lr_.push_back(group.lr());
  apply_rule();
}

void ChainedLr::apply_rule() {
  last_lr_.clear();
  for (size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].set_lr(rule_(groups_[i].lr(), base_lr_[i], num_steps_));
    last_lr_.push_back(groups_[i].lr());
  }
}

void ChainedLr::check_step(std::optional<int64_t> last_batch_iteration) const {
  refuse_step_by_number(last_batch_iteration);
}

void ChainedLr::step(std::optional<int64_t> last_batch_iteration) {
  check_step(last_batch_iteration);
  ++num_steps_;
  apply_rule();
}

std::vector<double> ChainedLr::get_lr() const {
  std::vector<double> rates;
  for (const ParamGroup& group : groups_) rates.push_back(group.lr());
  return rates;
}

Json ChainedLr::state_dict() const {
  return {{"base_lrs", base_lr_},
          {"last_epoch", num_steps_},
          {"_step_count", num_steps_ + 1},
          {"_last_lr", last_lr_}};
}

void ChainedLr::load_state_dict(const Json& state) {
  const bool fits = state.is_object() && state.contains("last_epoch") &&
                    state["last_epoch"].is_number_integer() && state["last_epoch"] >= 0 &&
                    is_rate_of_each_group(state, "base_lrs", groups_.size()) &&
                    is_rate_of_each_group(state, "_last_lr", groups_.size());
  if (!fits) {
    raise<CheckpointError>(
        "the state ", state.dump(), " is not that of a schedule of torch over ", groups_.size(),
        " parameter groups: {\"base_lrs\": [...], \"last_epoch\": n, \"_last_lr\": [...]}");
  }
  const auto rates = state["_last_lr"].get<std::vector<double>>();
  for (const double rate : rates) check_lr(rate);
  num_steps_ = state["last_epoch"].get<int64_t>();
  base_lr_ = state["base_lrs"].get<std::vector<double>>();
  for (size_t i = 0; i < groups_.size(); ++i) groups_[i].set_lr(rates[i]);
  last_lr_ = rates;
}

}  // namespace deepspeed::optim
