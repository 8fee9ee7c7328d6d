// What deepspeed/runtime/engine.py gives beside the model, as the core's initialize() takes it.
#pragma once

#include <memory>
#include <optional>

#include <torch/csrc/utils/pybind.h>

#include "deepspeed/comm/mpu.h"
#include "deepspeed/engine/assembly/initialize_options.h"
#include "deepspeed/optim/schedules/lr_scheduler_source.h"

namespace deepspeed::python {

namespace py = pybind11;

/// `groups`: [(parameters, options)]. `optimizer`: a dict of `stepper`, `name` and `is_elementwise`, for an
/// optimizer of Python's. `make_schedule`: a callable of [(options, names)] for a schedule of Python's, or
/// None. `mpu`: null where there is none.
InitializeOptions initialize_options(const py::dict& config, const py::list& groups,
                                     const std::optional<py::dict>& optimizer,
                                     const py::object& make_schedule,
                                     const std::shared_ptr<Mpu>& mpu = nullptr);

/// The schedule of initialize_options(), for the engine to make.
optim::LrSchedulerSource schedule_source(const py::object& make_schedule);

}  // namespace deepspeed::python
