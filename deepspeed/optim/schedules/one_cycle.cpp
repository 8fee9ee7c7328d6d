// OneCycle as in DeepSpeed, whose formulas and numbering of steps it keeps.
//
// Step t, from 0, is scaled by the position t + 1 in the cycle. The scale rises from 0 to 1 over the first
// step size and falls over the second one (continuous_scale), or does so in stairs (scale_at). The rate is
// min + (max - min) * scale, the momentum max - (max - min) * scale. After the cycle the rate is divided, and
// the momentum multiplied, by 1 + decay rate * decay_interval(). Before the first step both are the minimum.
#include "deepspeed/optim/schedules/one_cycle.h"

#include <algorithm>
#include <cmath>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"

namespace deepspeed::optim {
namespace {

constexpr double kSecondBeta = 0.99;
constexpr double kMinMomentum = 0.8, kMaxMomentum = 0.9;

}  // namespace

OneCycle::OneCycle(std::vector<ParamGroup>& groups, OneCycleOptions options)
    : GroupLrScheduler(groups), options_(std::move(options)) {
  if (options_.min_mom.empty()) options_.min_mom.assign(groups.size(), kMinMomentum);
  if (options_.max_mom.empty()) options_.max_mom.assign(groups.size(), kMaxMomentum);
  const OneCycleOptions& o = options_;
  if (o.first_step_size < 1 || o.second_step_size < 0 || o.first_stair_count < 0 ||
      o.second_stair_count < 0 || o.decay_step_size < 0) {
    raise<UsageError>("OneCycle needs a first step size above 0 and no negative size or count");
  }
  for (const auto* numbers : {&o.min_lr, &o.max_lr, &o.min_mom, &o.max_mom}) {
    if (numbers->size() == groups.size()) continue;
    raise<UsageError>(numbers->size(), " rates or momenta for ", groups.size(),
                      " parameter groups, expected one for each");
  }
  const auto has_betas = [](const ParamGroup& group) { return group.options.contains("betas"); };
  if (options_.momentum && !std::all_of(groups.begin(), groups.end(), has_betas)) {
    log::warning("cycle_momentum is off: the optimizer has no hyperparameter 'betas'");
    options_.momentum = false;
  }
  if (options_.momentum) warn_of_momenta(groups);
  write();
}

void OneCycle::warn_of_momenta(const std::vector<ParamGroup>& groups) const {
  for (const ParamGroup& group : groups) {
    const double second = group.options.pair("betas").second;
    if (second == kSecondBeta) continue;
    log::warning("OneCycle sets the second of the optimizer's betas to ", kSecondBeta, " in place of ",
                 second, ", as in DeepSpeed; cycle_momentum false leaves betas alone");
    break;
  }
  const OneCycleOptions& o = options_;
  if (o.decay_mom_rate <= 0 || o.decay_step_size == 0) return;
  const double highest = *std::max_element(o.max_mom.begin(), o.max_mom.end());
  if (highest >= 1 || highest <= 0) return;
  const double decay_steps =
      std::ceil((1 / highest - 1) / o.decay_mom_rate * static_cast<double>(o.decay_step_size));
  log::warning("OneCycle: by decay_mom_rate ", o.decay_mom_rate, " the momentum ", highest,
               " grows after the cycle and reaches 1 about step ",
               static_cast<double>(total_size()) + decay_steps, ", which is an error then; 0 keeps it");
}

void OneCycle::check_step(std::optional<int64_t> last_batch_iteration) const {
  GroupLrScheduler::check_step(last_batch_iteration);
  if (!options_.momentum) return;
  const int64_t t = last_batch_iteration.value_or(this->last_batch_iteration() + 1);
  for (size_t i = 0; i < options_.max_mom.size(); ++i) {
    const double momentum = momentum_at(t, i);
    if (momentum >= 0 && momentum < 1) continue;
    raise<UsageError>("OneCycle: with step ", t + 1, " the momentum of group ", i, " becomes ", momentum,
                      ", expected 0 or more and below 1: set decay_mom_rate, which is ",
                      options_.decay_mom_rate, ", to 0, or cycle_momentum to false");
  }
}

Json OneCycle::attributes() const {
  const OneCycleOptions& o = options_;
  Json shown = {{"min_lrs", o.min_lr},
                {"max_lrs", o.max_lr},
                {"total_size", total_size()},
                {"step_ratio", static_cast<double>(o.first_step_size) / static_cast<double>(total_size())},
                {"first_step_size", o.first_step_size},
                {"second_step_size", o.second_step_size},
                {"first_stair_count", o.first_stair_count},
                {"second_stair_count", o.second_stair_count},
                {"cycle_momentum", o.momentum}};
  if (!o.momentum) return shown;
  const int64_t t = last_batch_iteration();
  for (size_t i = 0; i < o.max_mom.size(); ++i) {
    shown["min_moms"].push_back({o.min_mom[i], kSecondBeta});
    shown["max_moms"].push_back({o.max_mom[i], kSecondBeta});
    shown["moms"].push_back({t < 0 ? o.max_mom[i] : momentum_at(t, i), kSecondBeta});
  }
  return shown;
}

double OneCycle::continuous_scale(int64_t batch) const {
  const double total = static_cast<double>(total_size());
  const double ratio = static_cast<double>(options_.first_step_size) / total;
  const double b = static_cast<double>(batch);
  const double cycle = std::floor(1 + b / total);
  const double x = 1 + b / total - cycle;
  return x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
}

double OneCycle::scale_at(int64_t t) const {
  const int64_t batch = t + 1;
  const int64_t in_cycle = batch % total_size();
  const bool first = in_cycle <= options_.first_step_size;
  const int64_t stairs = first ? options_.first_stair_count : options_.second_stair_count;
  if (stairs == 0) {
    return continuous_scale(batch);
  }
  const double way = static_cast<double>((first ? in_cycle : total_size() - in_cycle) * stairs);
  const double size = static_cast<double>(first ? options_.first_step_size : options_.second_step_size);
  return std::floor(way / size) / static_cast<double>(stairs);
}

double OneCycle::decay_interval(int64_t t) const {
  const int64_t decay_steps = t - total_size() + 1;
  return options_.decay_step_size == 0
             ? 0.0
             : static_cast<double>(decay_steps) / static_cast<double>(options_.decay_step_size);
}

std::vector<double> OneCycle::rates_at(int64_t t) const {
  std::vector<double> rates(options_.min_lr);
  if (t < 0) {
    return rates;
  }
  for (size_t i = 0; i < rates.size(); ++i) {
    if (t < total_size()) {
      rates[i] += (options_.max_lr[i] - options_.min_lr[i]) * scale_at(t);
    } else {
      rates[i] /= 1 + options_.decay_lr_rate * decay_interval(t);
    }
  }
  return rates;
}

double OneCycle::momentum_at(int64_t t, size_t group) const {
  const double min_mom = options_.min_mom[group], max_mom = options_.max_mom[group];
  if (t < 0) {
    return min_mom;
  }
  if (t < total_size()) {
    return max_mom - (max_mom - min_mom) * scale_at(t);
  }
  return max_mom * (1 + options_.decay_mom_rate * decay_interval(t));
}

void OneCycle::write_extra(int64_t t) {
  if (!options_.momentum) {
    return;
  }
  for (size_t i = 0; i < groups().size(); ++i) {
    groups()[i].options.set("betas", std::pair{momentum_at(t, i), kSecondBeta});
  }
}

}  // namespace deepspeed::optim
