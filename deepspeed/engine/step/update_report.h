// Reports an engine's updates: log lines every steps_per_print updates, and the monitors' scalars of each.
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
  profile::Throughput* throughput = nullptr;   // null: not requested
};

/// Logs counters, learning rates, momenta and the throughput.
void log_progress(const Progress& progress);

/// Returns an update's scalars under DeepSpeed's names and steps. They are the first group's learning rate,
/// the loss scale for fp16, and, if timers are not null, the milliseconds of the step's parts since the last
/// call.
std::vector<monitor::Event> update_events(const TrainingState& state, profile::StepTimers* timers);

}  // namespace deepspeed
