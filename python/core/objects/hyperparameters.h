// Converts the options of a parameter group from and to the dicts of torch's optimizers.
#pragma once

#include <string>

#include <torch/csrc/utils/pybind.h>

#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed::python {

namespace py = pybind11;

py::dict to_dict(const optim::Hyperparameters& options);

/// Sets an option from a bool, number, text, pair of numbers, or one-element tensor. Returns whether the
/// value is one of these. Options with other values belong to the program and are not set.
bool set_option(optim::Hyperparameters& options, const std::string& name, const py::handle& value);

}  // namespace deepspeed::python
