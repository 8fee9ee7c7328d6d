// Values of checkpoints and the objects of Python that they stand for.
#pragma once

#include <string>

#include <torch/csrc/utils/pybind.h>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::python {

namespace py = pybind11;

/// Throws TypeError that names `path` for an object that a checkpoint cannot hold.
checkpoint::Value to_value(const py::handle& object, const std::string& path);

py::object from_value(const checkpoint::Value& value);

}  // namespace deepspeed::python
