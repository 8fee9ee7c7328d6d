// The schedules that start with a warm-up: WarmupLR, WarmupDecayLR, WarmupCosineLR.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "deepspeed/optim/schedules/group_lr_scheduler.h"

namespace deepspeed::optim {

/// Computes the warm-up's progress, which goes from 0 to 1 over `num_steps` steps. At step t of N the
/// progress is ln(t + 1) / ln(N) (kLog) or t / N (kLinear).
class Warmup {
 public:
  enum class Shape { kLog, kLinear };
  /// Sets the length. Throws UsageError for a negative number of steps. 0 and 1 count as 2, since ln(1) is 0.
  Warmup(int64_t num_steps, Shape shape);

  int64_t num_steps() const { return num_steps_; }
  /// Returns the progress at t, for 0 <= t < num_steps.
  double at(int64_t t) const;

 private:
  int64_t num_steps_;
  Shape shape_;
};

/// Moves each group's rate from its min_lr to its max_lr, then keeps it there.
class WarmupLr : public GroupLrScheduler {
 public:
  WarmupLr(std::vector<ParamGroup>& groups, std::vector<double> min_lr, std::vector<double> max_lr,
           Warmup warmup);
  Json attributes() const override;

 protected:
  std::vector<double> rates_at(int64_t t) const override { return blend(t, 1.0); }
  /// Returns min_lr + progress * (max_lr - min_lr) at t. After the warm-up the progress is `after`.
  std::vector<double> blend(int64_t t, double after) const;
  const Warmup& warmup() const { return warmup_; }

 private:
  std::vector<double> min_lr_;
  std::vector<double> max_lr_;
  Warmup warmup_;
};

/// Warms up like WarmupLr, then falls linearly to min_lr at `total_num_steps`.
class WarmupDecayLr : public WarmupLr {
 public:
  WarmupDecayLr(std::vector<ParamGroup>& groups, std::vector<double> min_lr, std::vector<double> max_lr,
                Warmup warmup, int64_t total_num_steps);
  /// Throws UsageError for a step below -1, and if `total_num_steps` is 0.
  void check_step(std::optional<int64_t> last_batch_iteration) const override;

 protected:
  std::vector<double> rates_at(int64_t t) const override;

 private:
  int64_t total_num_steps_;
};

/// Multiplies each group's initial rate by a ratio. The ratio is 0 before the first step, rises from
/// `warmup_min_ratio` to 1, then falls along a cosine to `cos_min_ratio`.
class WarmupCosineLr : public GroupLrScheduler {
 public:
  WarmupCosineLr(std::vector<ParamGroup>& groups, Warmup warmup, double warmup_min_ratio,
                 int64_t total_num_steps, double cos_min_ratio);
  /// Returns the schedule's parameters, among them "lr_ratio", the current factor of the rates.
  Json attributes() const override;
  /// Throws UsageError for a step below -1, and if `total_num_steps` is 0.
  void check_step(std::optional<int64_t> last_batch_iteration) const override;

 protected:
  std::vector<double> rates_at(int64_t t) const override;

 private:
  double ratio_at(int64_t t) const;

  std::vector<double> base_lr_;
  Warmup warmup_;
  double warmup_min_ratio_;
  int64_t total_num_steps_;
  double cos_min_ratio_;
};

}  // namespace deepspeed::optim
