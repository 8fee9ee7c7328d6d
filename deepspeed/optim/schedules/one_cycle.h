// OneCycle raises and lowers the rate once, with the momentum in the opposite direction; then both decay
// (Smith, arXiv 1803.09820).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "deepspeed/optim/schedules/group_lr_scheduler.h"

namespace deepspeed::optim {

/// Holds the config's arguments of OneCycle, named as there without the prefix "cycle_".
struct OneCycleOptions {
  std::vector<double> min_lr;  // one per group
  std::vector<double> max_lr;
  double decay_lr_rate = 0;
  int64_t first_step_size = 2000;
  int64_t second_step_size = 2000;
  int64_t first_stair_count = 0;  // 0: no stairs
  int64_t second_stair_count = 0;
  int64_t decay_step_size = 0;
  bool momentum = true;              // write "betas" too; disabled with a warning if a group has none
  std::vector<double> min_mom = {};  // one per group; empty: 0.8
  std::vector<double> max_mom = {};  // one per group; empty: 0.9
  double decay_mom_rate = 0;
};

class OneCycle : public GroupLrScheduler {
 public:
  /// Writes the first rates. Throws UsageError for a first step size below 1, negative sizes or counts, and
  /// lists without one number per group. Warns if OneCycle changes the second of "betas", and if the momentum
  /// will reach 1.
  OneCycle(std::vector<ParamGroup>& groups, OneCycleOptions options);
  /// Throws UsageError for a step below -1, and if the momentum would leave [0, 1).
  void check_step(std::optional<int64_t> last_batch_iteration) const override;
  /// Returns the schedule's parameters, among them "moms", the momenta at this step. Before the first step
  /// "moms" has the highest momentum, although the groups have the lowest.
  Json attributes() const override;

 protected:
  std::vector<double> rates_at(int64_t t) const override;
  void write_extra(int64_t t) override;

 private:
  int64_t total_size() const { return options_.first_step_size + options_.second_step_size; }
  /// Returns the rate's position between its minimum, 0, and its maximum, 1, at step t.
  double scale_at(int64_t t) const;
  double continuous_scale(int64_t batch) const;
  double momentum_at(int64_t t, size_t group) const;
  /// Returns the steps since the cycle's end, divided by decay_step_size; 0 if that is 0.
  double decay_interval(int64_t t) const;
  void warn_of_momenta(const std::vector<ParamGroup>& groups) const;

  OneCycleOptions options_;
};

}  // namespace deepspeed::optim
