// A Python schedule that the core steps: one of torch's, or any object with the same methods.
#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "deepspeed/base/json.h"

namespace deepspeed::python {

namespace py = pybind11;

/// Implements UserLrScheduler (optim/schedules/lr_scheduler_adapter.h) by a Python ClientSchedule
/// (deepspeed/_schedules.py).
class Schedule {
 public:
  explicit Schedule(std::shared_ptr<py::object> object) : object_(std::move(object)) {}

  void step();
  void step(int64_t last_batch_iteration);
  std::vector<double> get_lr() const;
  Json state_dict() const;
  void load_state_dict(const Json& state);

 private:
  std::shared_ptr<py::object> object_;
};

}  // namespace deepspeed::python
