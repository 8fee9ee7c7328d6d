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

/// Rank 0 writes; on other ranks events go nowhere.
class DEEPSPEED_API MonitorMaster {
 public:
  explicit MonitorMaster(bool is_writer) : is_writer_(is_writer) {}
  /// Adds the monitors that the config turns on: csv_monitor. Throws IoError where a folder cannot be made.
  void add_configured(const config::DeepSpeedConfig& config);
  /// Adds one of the program's own. What it throws leaves the call that has the events: step() of an engine.
  void add(std::shared_ptr<Monitor> monitor);
  /// Whether somebody takes events; on the rank that writes, from add_configured() or add() on.
  bool enabled() const { return !monitors_.empty(); }
  /// Hands the events to each monitor. An IoError is logged, once a monitor, and the training goes on.
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
