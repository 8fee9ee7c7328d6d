// The log gets these lines every steps_per_print updates.
#pragma once

#include <utility>
#include <vector>

#include "deepspeed/engine/saving/training_state.h"
#include "deepspeed/profile/step_timers.h"
#include "deepspeed/profile/throughput.h"

namespace deepspeed {

struct Progress {
  const TrainingState& state;
  std::vector<double> lr;                      // [group]
  std::vector<std::pair<double, double>> mom;  // [group]
  profile::Throughput* throughput = nullptr;   // null: not asked for
  profile::StepTimers* timers = nullptr;       // null: not asked for
};

/// Logs counters, rates and momenta, the throughput, and the times of the parts of a step.
void log_progress(const Progress& progress);

}  // namespace deepspeed
