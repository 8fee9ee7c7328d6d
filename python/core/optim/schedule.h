// A schedule of Python's, which the core steps: one that torch has, or any object with its methods.
#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "deepspeed/base/json.h"

namespace deepspeed::python {

namespace py = pybind11;

/// Is a UserLrScheduler (optim/schedules/lr_scheduler_adapter.h) around an object of the class
/// ClientSchedule (deepspeed/_schedules.py).
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
