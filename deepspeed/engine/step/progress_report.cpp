#include "deepspeed/engine/step/progress_report.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "deepspeed/base/log.h"
#include "deepspeed/profile/memory_report.h"

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
  if (progress.timers) log::info(progress.timers->global_line());
}

}  // namespace deepspeed
