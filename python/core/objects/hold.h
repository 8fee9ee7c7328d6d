// Objects of Python that the core owns: models, callbacks, optimizers.
#pragma once

#include <memory>

#include <torch/csrc/utils/pybind.h>

namespace deepspeed::python {

namespace py = pybind11;

/// Holds `object` for the core, which may let go of it on any thread, and after the interpreter has ended:
/// then nothing is freed.
inline std::shared_ptr<py::object> hold(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            if (Py_IsInitialized() == 0) return;
            const py::gil_scoped_acquire gil;
            delete held;
          }};
}

/// Releases the interpreter during a call that may wait for other ranks, for a disk or for a thread.
using NoGil = py::call_guard<py::gil_scoped_release>;

}  // namespace deepspeed::python
