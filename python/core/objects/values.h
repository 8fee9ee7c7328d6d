// Converts between checkpoint values and the Python objects that they stand for.
#pragma once

#include <string>

#include <torch/csrc/utils/pybind.h>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::python {

namespace py = pybind11;

/// Converts an object to a checkpoint value. Throws TypeError, naming `path`, if a checkpoint cannot hold it.
checkpoint::Value to_value(const py::handle& object, const std::string& path);

/// Returns the Python object of a value. Throws Python's error if `deepspeed._objects` cannot make the
/// object.
py::object from_value(const checkpoint::Value& value);

/// Returns what from_value() does, but Python errors become CheckpointErrors that begin with `place`.
py::object from_value_of(const std::string& place, const checkpoint::Value& value);

/// Makes a Python dict from all keys and values. Python errors become CheckpointErrors that name `path` and
/// the key.
py::dict from_named_values(const checkpoint::Dict& values, const std::string& path);

}  // namespace deepspeed::python
