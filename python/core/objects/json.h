// JSON values of the core and the objects of Python that json.loads() gives.
#pragma once

#include <string>

#include <torch/csrc/utils/pybind.h>

#include "deepspeed/base/json.h"

namespace deepspeed::python {

namespace py = pybind11;

/// Converts dicts and other mappings, lists, tuples, numbers (infinity and NumPy's too), text, enums, dtypes
/// and paths. Throws TypeError that names `path` for anything else, ValueError for integers beyond 64 bits,
/// text that is not UTF-8, and what is nested too deep.
Json to_json(const py::handle& object, const std::string& path);

py::object from_json(const Json& value);

}  // namespace deepspeed::python
