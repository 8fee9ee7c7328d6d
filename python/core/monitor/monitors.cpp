// Passes events of the core's engines to Python monitors, and events from Python to CSV files.
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "deepspeed/engine/training_engine.h"
#include "deepspeed/monitor/csv_monitor.h"
#include "deepspeed/monitor/monitor_master.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"

namespace deepspeed::python {
namespace {

using EventTuple = std::tuple<std::string, double, int64_t>;

/// Calls Python's `write(events)`, with each event as (name, value, step).
class PythonMonitor : public monitor::Monitor {
 public:
  explicit PythonMonitor(py::object write) : write_(hold(std::move(write))) {}

  void write_events(const std::vector<monitor::Event>& events) override {
    const py::gil_scoped_acquire gil;
    std::vector<EventTuple> tuples;
    for (const monitor::Event& event : events) tuples.emplace_back(event.name, event.value, event.step);
    (*write_)(tuples);
  }

 private:
  std::shared_ptr<py::object> write_;
};

}  // namespace

void bind_monitors(py::module_& module) {
  module.def(
      "add_monitor",
      [](TrainingEngine& engine, py::object write) {
        engine.monitor().add(std::make_shared<PythonMonitor>(std::move(write)));
      },
      "engine"_a, "write"_a);
  py::class_<monitor::CsvMonitor>(module, "CsvMonitor")
      .def(py::init([](const std::string& folder) { return monitor::CsvMonitor(folder); }), "folder"_a)
      .def(
          "write_events",
          [](monitor::CsvMonitor& self, const std::vector<EventTuple>& tuples) {
            std::vector<monitor::Event> events;
            for (const auto& [name, value, step] : tuples) events.push_back({name, value, step});
            self.write_events(events);
          },
          NoGil(), "events"_a);
}

}  // namespace deepspeed::python
