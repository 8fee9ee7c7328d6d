// All monitors of an engine: those of its config, and those that the program adds.
#pragma once

#include <memory>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/monitor/monitor.h"

namespace deepspeed::config {
struct DeepSpeedConfig;
}

namespace deepspeed::monitor {

/// Passes events to all monitors on rank 0, and drops them on other ranks.
class DEEPSPEED_API MonitorMaster {
 public:
  explicit MonitorMaster(bool is_writer) : is_writer_(is_writer) {}
  /// Adds the monitors that the config enables: csv_monitor. Throws IoError if a folder cannot be made.
  void add_configured(const config::DeepSpeedConfig& config);
  /// Adds a monitor of the program's own. Its exceptions, except IoError, pass through the call that sends
  /// the events, such as an engine's step().
  void add(std::shared_ptr<Monitor> monitor);
  /// Returns whether there is a monitor to write to. Always false on ranks other than 0.
  bool enabled() const { return !monitors_.empty(); }
  /// Passes the events to each monitor. An IoError is logged, once per monitor, and the training continues.
  void write_events(const std::vector<Event>& events);

 private:
  struct Held {
    std::shared_ptr<Monitor> monitor;
    bool has_failed = false;
  };

  bool is_writer_;
  std::vector<Held> monitors_;
};

}  // namespace deepspeed::monitor
