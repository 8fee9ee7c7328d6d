#include "deepspeed/engine/step/preemption.h"

#include <utility>

#include <ATen/ops/full.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/device/preemption_signal.h"

namespace deepspeed {

PreemptionWatch::PreemptionWatch(const PreemptionOptions& options) : check_every_(options.check_every) {
  if (check_every_ < 1) {
    raise<UsageError>("check_every is ", check_every_, ", expected at least 1");
  }
  device::catch_preemption_signal(options.signal);
}

void PreemptionWatch::end_step(const comm::ProcessGroup& group) {
  if (requested_) return;
  if (comparison_) {
    std::exchange(comparison_, {}).wait();
    requested_ = *votes_.const_data_ptr<double>() > 0.0;
    if (requested_) return log::warning("[engine] preemption was requested: the program is to save and end");
  }
  if (++steps_ % check_every_ != 0) return;
  votes_ = at::full({1}, device::preemption_signal_received() ? 1.0 : 0.0, at::kDouble);
  comparison_ = group.start_all_reduce(votes_);
}

}  // namespace deepspeed
