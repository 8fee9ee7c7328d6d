// In OneCycle the rate goes up and down once, the momentum against it, then both decay (Smith, arXiv
// 1803.09820).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "deepspeed/optim/schedules/group_lr_scheduler.h"

namespace deepspeed::optim {

/// Holds the config's arguments of OneCycle, named as there without the prefix "cycle_".
struct OneCycleOptions {
  std::vector<double> min_lr;  // one a group
  std::vector<double> max_lr;
  double decay_lr_rate = 0;
  int64_t first_step_size = 2000;
  int64_t second_step_size = 2000;
  int64_t first_stair_count = 0;  // 0: no stairs
  int64_t second_stair_count = 0;
  int64_t decay_step_size = 0;
  bool momentum = true;              // write "betas" too; off with a warning where a group has none
  std::vector<double> min_mom = {};  // one a group; empty: 0.8
  std::vector<double> max_mom = {};  // one a group; empty: 0.9
  double decay_mom_rate = 0;
};

class OneCycle : public GroupLrScheduler {
 public:
  /// Writes the first rates. Throws UsageError for a first step below 1, negative sizes or counts, and
  /// numbers that are not one a group. Warns where the second of "betas" becomes another one, and where the
  /// momentum will reach 1.
  OneCycle(std::vector<ParamGroup>& groups, OneCycleOptions options);
  /// Throws UsageError as well where the momentum would leave [0, 1) with this step.
  void check_step(std::optional<int64_t> last_batch_iteration) const override;
  /// Holds among others "moms", the momenta of the cycle at this step: the highest before the first one, when
  /// the groups have the lowest.
  Json attributes() const override;

 protected:
  std::vector<double> rates_at(int64_t t) const override;
  void write_extra(int64_t t) override;

 private:
  int64_t total_size() const { return options_.first_step_size + options_.second_step_size; }
  /// Returns how far up the cycle t is, from 0 to 1.
  double scale_at(int64_t t) const;
  double continuous_scale(int64_t batch) const;
  double momentum_at(int64_t t, size_t group) const;
  /// Returns the decay steps, in units of decay_step_size, since the cycle's end; 0 where there is no decay.
  double decay_interval(int64_t t) const;
  void warn_of_momenta(const std::vector<ParamGroup>& groups) const;

  OneCycleOptions options_;
};

}  // namespace deepspeed::optim
