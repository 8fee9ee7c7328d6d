#include "deepspeed/monitor/monitor_master.h"

#include <filesystem>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/config/config.h"
#include "deepspeed/monitor/csv_monitor.h"

namespace deepspeed::monitor {

void MonitorMaster::add_configured(const config::DeepSpeedConfig& config) {
  if (!is_writer_ || !config.csv_monitor.enabled) return;
  const std::filesystem::path folder = config.csv_monitor.output_path;
  add(std::make_shared<CsvMonitor>(folder / config.csv_monitor.job_name));
}

void MonitorMaster::add(std::shared_ptr<Monitor> monitor) {
  if (!monitor) raise<UsageError>("monitor: got null; pass a shared_ptr to a Monitor");
  if (is_writer_) monitors_.push_back({std::move(monitor)});
}

void MonitorMaster::write_events(const std::vector<Event>& events) {
  for (Held& held : monitors_) {
    try {
      held.monitor->write_events(events);
    } catch (const IoError& error) {
      if (!std::exchange(held.has_failed, true))
        log::error("[monitor] scalars are lost, the training goes on: ", error.what());
    }
  }
}

}  // namespace deepspeed::monitor
