// Keeps Python objects for the core: models, callbacks, optimizers.
#pragma once

#include <memory>

#include <torch/csrc/utils/pybind.h>

namespace deepspeed::python {

namespace py = pybind11;

/// Returns a reference to `object` that the core may release on any thread. After the interpreter has ended,
/// the release frees nothing.
inline std::shared_ptr<py::object> hold(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            if (Py_IsInitialized() == 0) return;
            const py::gil_scoped_acquire gil;
            delete held;
          }};
}

/// Releases the interpreter's lock during a bound function's call. Such calls may wait for other ranks, a
/// disk or a thread.
using NoGil = py::call_guard<py::gil_scoped_release>;

}  // namespace deepspeed::python
