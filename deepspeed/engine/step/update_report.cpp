#include "deepspeed/engine/step/update_report.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iomanip>
#include <sstream>
#include <string>

#include "deepspeed/base/log.h"
#include "deepspeed/profile/memory_report.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {
namespace {

void log_throughput(const Progress& progress) {
  const auto rates = progress.throughput ? progress.throughput->read() : std::nullopt;
  if (!rates) return;
  const RunCounters& counters = progress.state.counters;
  const auto& loader = progress.state.loader_position;
  std::ostringstream line;
  line << std::fixed << std::setprecision(2) << "epoch=" << (loader ? std::max<int64_t>(loader->epoch, 0) : 0)
       << "/micro_step=" << counters.micro_steps << "/global_step=" << counters.global_steps
       << ", RunningAvgSamplesPerSec=" << rates->average << ", CurrSamplesPerSec=" << rates->current << ", "
       << profile::memory_in_use();
  log::info(line.str());
}

}  // namespace

void log_progress(const Progress& progress) {
  std::ostringstream line;
  line << "step=" << progress.state.counters.global_steps
       << ", skipped=" << progress.state.counters.skipped_steps << ", lr=[";
  const char* separator = "";
  for (const double lr : progress.lr) line << std::exchange(separator, ", ") << lr;
  line << "], mom=[";
  separator = "";
  for (const auto& [first, second] : progress.mom) {
    line << std::exchange(separator, ", ") << "(" << first << ", " << second << ")";
  }
  line << "]";
  log::info(line.str());
  log_throughput(progress);
}

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
