// What an engine tells of its updates: lines of the log every steps_per_print of them, and the monitors'
// scalars of each.
#pragma once

#include <utility>
#include <vector>

#include "deepspeed/engine/saving/training_state.h"
#include "deepspeed/monitor/monitor.h"
#include "deepspeed/profile/step_timers.h"
#include "deepspeed/profile/throughput.h"

namespace deepspeed {

struct Progress {
  const TrainingState& state;
  std::vector<double> lr;                      // [group]
  std::vector<std::pair<double, double>> mom;  // [group]
  profile::Throughput* throughput = nullptr;   // null: not asked for
};

/// Logs counters, rates and momenta, and the throughput.
void log_progress(const Progress& progress);

/// Returns the rate of the first group, the loss scale of fp16, and the milliseconds of the parts of the step
/// since the last call, where timers are not null. Names and steps are DeepSpeed's.
std::vector<monitor::Event> update_events(const TrainingState& state, profile::StepTimers* timers);

}  // namespace deepspeed
