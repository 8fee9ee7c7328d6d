// Converts between the core's JSON values and the Python objects that json.loads() returns.
#pragma once

#include <string>

#include <torch/csrc/utils/pybind.h>

#include "deepspeed/base/json.h"

namespace deepspeed::python {

namespace py = pybind11;

/// Converts dicts and other mappings, lists, tuples, numbers, text, enums, dtypes and paths. Numbers may be
/// infinite or NumPy's. Throws TypeError, naming `path`, for any other object. Throws ValueError for integers
/// beyond 64 bits, text that is not UTF-8, and too deep nesting.
Json to_json(const py::handle& object, const std::string& path);

py::object from_json(const Json& value);

}  // namespace deepspeed::python
