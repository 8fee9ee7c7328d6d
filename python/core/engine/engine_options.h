// Converts what deepspeed/runtime/engine.py passes next to the model to options of the core's initialize().
#pragma once

#include <memory>
#include <optional>

#include <torch/csrc/utils/pybind.h>

#include "deepspeed/comm/mpu.h"
#include "deepspeed/engine/assembly/initialize_options.h"
#include "deepspeed/optim/schedules/lr_scheduler_source.h"

namespace deepspeed::python {

namespace py = pybind11;

/// Converts the arguments of an engine. `groups`: [(parameters, options)]. `optimizer`: for a Python
/// optimizer, a dict of `stepper`, `name` and `is_elementwise`. `make_schedule`: None, or for a Python
/// schedule a callable that takes [(options, names)]. `mpu`: null if there is none.
InitializeOptions initialize_options(const py::dict& config, const py::list& groups,
                                     const std::optional<py::dict>& optimizer,
                                     const py::object& make_schedule,
                                     const std::shared_ptr<Mpu>& mpu = nullptr);

/// Converts `make_schedule`, as initialize_options() takes it, to the schedule that the engine will make.
optim::LrSchedulerSource schedule_source(const py::object& make_schedule);

}  // namespace deepspeed::python
