#include "deepspeed/engine/step/update_events.h"

#include <array>
#include <cstddef>
#include <string>

#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {

std::vector<monitor::Event> update_events(const TrainingState& state, profile::StepTimers* timers) {
  const int64_t samples = state.counters.global_samples;
  zero::ZeroOptimizer& optimizer = *state.parts.optimizer;
  std::vector<monitor::Event> events;
  events.push_back({"Train/Samples/lr", optimizer.param_groups().front().lr(), samples});
  if (state.parts.config.fp16.enabled)
    events.push_back({"Train/Samples/loss_scale", optimizer.loss_scale(), samples});
  if (timers == nullptr) return events;
  constexpr std::array<const char*, profile::kNumStepParts> kNames = {"forward", "backward", "backward_inner",
                                                                      "backward_allreduce", "step"};
  const auto times = timers->take_update();
  for (size_t part = 0; part < times.size(); ++part)
    events.push_back({std::string("Train/Samples/elapsed_time_ms_") + kNames[part], times[part], samples});
  return events;
}

}  // namespace deepspeed
