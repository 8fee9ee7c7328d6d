#include "deepspeed/optim/algorithms/zero_one_intervals.h"

#include <algorithm>

namespace deepspeed::optim {

ZeroOneIntervals::ZeroOneIntervals(const ZeroOneOptions& options, int64_t steps) : options_(options) {
  while (steps_ < steps) advance();
}

void ZeroOneIntervals::advance() {
  if (is_local()) {
    if (++local_steps_ == options_.local_step_scaler) {
      local_steps_ = 0;
      local_interval_ = std::min(options_.local_step_clipper, 2 * local_interval_);
    }
  } else if (renews_variance() && ++renewals_ == options_.var_update_scaler) {
    renewals_ = 0;
    variance_interval_ *= 2;
  }
  ++steps_;
}

}  // namespace deepspeed::optim
