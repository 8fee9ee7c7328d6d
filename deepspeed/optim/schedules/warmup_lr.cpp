#include "deepspeed/optim/schedules/warmup_lr.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"

namespace deepspeed::optim {
namespace {

void warn_if_shorter_than_warmup(int64_t total_num_steps, const Warmup& warmup) {
  if (total_num_steps > 0 && total_num_steps < warmup.num_steps()) {
    log::warning("total_num_steps ", total_num_steps, " is less than warmup_num_steps ", warmup.num_steps());
  }
}

void require_steps(int64_t total_num_steps) {
  if (total_num_steps > 0) return;
  raise<UsageError>("scheduler.params.total_num_steps: got ", total_num_steps,
                    ", which is for evaluation alone, expected the number of updates of the training before "
                    "its first step()");
}

// Returns the number of steps after the warm-up. It is at least 1, since it is a divisor.
double steps_after(int64_t total_num_steps, const Warmup& warmup) {
  return static_cast<double>(std::max<int64_t>(1, total_num_steps - warmup.num_steps()));
}

}  // namespace

Warmup::Warmup(int64_t num_steps, Shape shape) : num_steps_(std::max<int64_t>(2, num_steps)), shape_(shape) {
  if (num_steps < 0) {
    raise<UsageError>("warmup_num_steps is ", num_steps, ", expected at least 0");
  }
}

double Warmup::at(int64_t t) const {
  const double steps = static_cast<double>(num_steps_);
  return shape_ == Shape::kLog ? std::log(static_cast<double>(t + 1)) / std::log(steps)
                               : static_cast<double>(t) / steps;
}

WarmupLr::WarmupLr(std::vector<ParamGroup>& groups, std::vector<double> min_lr, std::vector<double> max_lr,
                   Warmup warmup)
    : GroupLrScheduler(groups), min_lr_(std::move(min_lr)), max_lr_(std::move(max_lr)), warmup_(warmup) {
  if (min_lr_.size() != groups.size() || max_lr_.size() != groups.size()) {
    raise<UsageError>(min_lr_.size(), " and ", max_lr_.size(), " rates for ", groups.size(),
                      " parameter groups, expected one for each");
  }
  write();
}

Json WarmupLr::attributes() const {
  Json shown = {{"min_lrs", min_lr_}, {"max_lrs", max_lr_}, {"warmup_num_steps", warmup_.num_steps()}};
  for (size_t i = 0; i < max_lr_.size(); ++i) shown["delta_lrs"].push_back(max_lr_[i] - min_lr_[i]);
  return shown;
}

std::vector<double> WarmupLr::blend(int64_t t, double after) const {
  if (t < 0) {
    return min_lr_;
  }
  const double share = t < warmup_.num_steps() ? warmup_.at(t) : after;
  std::vector<double> rates(min_lr_);
  for (size_t i = 0; i < rates.size(); ++i) {
    rates[i] += (max_lr_[i] - min_lr_[i]) * share;
  }
  return rates;
}

WarmupDecayLr::WarmupDecayLr(std::vector<ParamGroup>& groups, std::vector<double> min_lr,
                             std::vector<double> max_lr, Warmup warmup, int64_t total_num_steps)
    : WarmupLr(groups, std::move(min_lr), std::move(max_lr), warmup), total_num_steps_(total_num_steps) {
  warn_if_shorter_than_warmup(total_num_steps, warmup);
}

void WarmupDecayLr::check_step(std::optional<int64_t> last_batch_iteration) const {
  require_steps(total_num_steps_);
  WarmupLr::check_step(last_batch_iteration);
}

std::vector<double> WarmupDecayLr::rates_at(int64_t t) const {
  return blend(
      t, std::max(0.0, static_cast<double>(total_num_steps_ - t) / steps_after(total_num_steps_, warmup())));
}

WarmupCosineLr::WarmupCosineLr(std::vector<ParamGroup>& groups, Warmup warmup, double warmup_min_ratio,
                               int64_t total_num_steps, double cos_min_ratio)
    : GroupLrScheduler(groups),
      warmup_(warmup),
      warmup_min_ratio_(warmup_min_ratio),
      total_num_steps_(total_num_steps),
      cos_min_ratio_(cos_min_ratio) {
  for (const ParamGroup& group : groups) {
    base_lr_.push_back(group.lr());
  }
  warn_if_shorter_than_warmup(total_num_steps, warmup);
  write();
}

void WarmupCosineLr::check_step(std::optional<int64_t> last_batch_iteration) const {
  require_steps(total_num_steps_);
  GroupLrScheduler::check_step(last_batch_iteration);
}

Json WarmupCosineLr::attributes() const {
  return {{"org_lrs", base_lr_},
          {"lr_ratio", ratio_at(last_batch_iteration())},
          {"warmup_num_steps", warmup_.num_steps()}};
}

double WarmupCosineLr::ratio_at(int64_t t) const {
  if (t < 0) {
    return 0;
  }
  if (t < warmup_.num_steps()) {
    return warmup_min_ratio_ + (1 - warmup_min_ratio_) * warmup_.at(t);
  }
  const double done = std::min(
      1.0, static_cast<double>(t - warmup_.num_steps() + 1) / steps_after(total_num_steps_, warmup_));
  const double cosine = (1 + std::cos(std::numbers::pi * done)) / 2;
  return std::max(0.0, cos_min_ratio_ + (1 - cos_min_ratio_) * cosine);
}

std::vector<double> WarmupCosineLr::rates_at(int64_t t) const {
  std::vector<double> rates(base_lr_);
  for (double& rate : rates) {
    rate *= ratio_at(t);
  }
  return rates;
}

}  // namespace deepspeed::optim
