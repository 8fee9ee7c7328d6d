// LRRangeTest raises the rate, continuously or in stairs, to find the largest one that trains (Smith, arXiv
// 1803.09820).
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/optim/schedules/group_lr_scheduler.h"

namespace deepspeed::optim {

/// Raises the rate to min_lr * (1 + step_rate * (t + 1) / step_size). `staircase` rounds the quotient down.
class LrRangeTest : public GroupLrScheduler {
 public:
  /// Writes the first rates. `min_lr` has one rate per group. Throws UsageError for another number of rates,
  /// or a step size below 1.
  LrRangeTest(std::vector<ParamGroup>& groups, std::vector<double> min_lr, int64_t step_size,
              double step_rate, bool staircase);
  Json attributes() const override {
    return {
        {"min_lr", min_lr_}, {"step_size", step_size_}, {"step_rate", step_rate_}, {"staircase", staircase_}};
  }

 protected:
  std::vector<double> rates_at(int64_t t) const override;

 private:
  std::vector<double> min_lr_;
  int64_t step_size_;
  double step_rate_;
  bool staircase_;
};

}  // namespace deepspeed::optim
