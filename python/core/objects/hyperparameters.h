// Options of a parameter group, as the dicts of torch's optimizers have them.
#pragma once

#include <string>

#include <torch/csrc/utils/pybind.h>

#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed::python {

namespace py = pybind11;

py::dict to_dict(const optim::Hyperparameters& options);

/// Sets an option from a bool, a number, text, a pair of numbers or a tensor of one number. Returns whether
/// the value is of one of these kinds; others are the program's own.
bool set_option(optim::Hyperparameters& options, const std::string& name, const py::handle& value);

}  // namespace deepspeed::python
