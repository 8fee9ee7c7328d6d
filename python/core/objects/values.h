// Values of checkpoints and the objects of Python that they stand for.
#pragma once

#include <string>

#include <torch/csrc/utils/pybind.h>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::python {

namespace py = pybind11;

/// Throws TypeError that names `path` for an object that a checkpoint cannot hold.
checkpoint::Value to_value(const py::handle& object, const std::string& path);

/// Makes the objects that `deepspeed._objects` knows how to make; Python's error for any other.
py::object from_value(const checkpoint::Value& value);

/// As from_value(), but an error of Python's is a CheckpointError that begins with `place`.
py::object from_value_of(const std::string& place, const checkpoint::Value& value);

/// Makes a dict of each key's value. Throws CheckpointError that names `path` and the key.
py::dict from_named_values(const checkpoint::Dict& values, const std::string& path);

}  // namespace deepspeed::python
