// What an engine tells its monitors of each update.
#pragma once

#include <vector>

#include "deepspeed/engine/saving/training_state.h"
#include "deepspeed/monitor/monitor.h"
#include "deepspeed/profile/step_timers.h"

namespace deepspeed {

/// Returns the rate of the first group, the loss scale of fp16, and the milliseconds of the parts of the step
/// since the last call, where timers are not null. Names and steps are DeepSpeed's.
std::vector<monitor::Event> update_events(const TrainingState& state, profile::StepTimers* timers);

}  // namespace deepspeed
