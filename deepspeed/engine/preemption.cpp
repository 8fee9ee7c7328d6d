#include "deepspeed/engine/preemption.h"

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/device/preemption_signal.h"

namespace deepspeed {

PreemptionWatch::PreemptionWatch(const PreemptionOptions& options) : check_every_(options.check_every) {
  if (check_every_ < 1) {
    raise<UsageError>("engine.preemption", "check_every is ", check_every_, ", expected at least 1");
  }
  device::catch_preemption_signal(options.signal);
}

void PreemptionWatch::end_step(const comm::ProcessGroup& group) {
  if (requested_ || ++steps_ % check_every_ != 0) return;
  const bool mine = device::preemption_signal_received();
  requested_ = group.all_reduce_scalar(mine ? 1.0 : 0.0) > 0.0;
  if (requested_) log::warning("[engine] preemption was requested: the program is to save and end");
}

}  // namespace deepspeed
