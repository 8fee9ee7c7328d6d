#include "deepspeed/optim/schedules/lr_range_test.h"

#include <cmath>

#include "deepspeed/base/error.h"

namespace deepspeed::optim {

LrRangeTest::LrRangeTest(std::vector<ParamGroup>& groups, std::vector<double> min_lr, int64_t step_size,
                         double step_rate, bool staircase)
    : GroupLrScheduler(groups),
      min_lr_(std::move(min_lr)),
      step_size_(step_size),
      step_rate_(step_rate),
      staircase_(staircase) {
  if (step_size < 1) {
    raise<UsageError>("lr_range_test_step_size is ", step_size, ", expected at least 1");
  }
  if (min_lr_.size() != groups.size()) {
    raise<UsageError>(min_lr_.size(), " rates for ", groups.size(),
                      " parameter groups, expected one for each");
  }
  write();
}

std::vector<double> LrRangeTest::rates_at(int64_t t) const {
  const double exact = static_cast<double>(t + 1) / static_cast<double>(step_size_);
  const double interval = staircase_ ? std::floor(exact) : exact;
  std::vector<double> rates(min_lr_);
  for (double& rate : rates) {
    rate *= 1 + step_rate_ * interval;
  }
  return rates;
}

}  // namespace deepspeed::optim
