// Translates the core's errors to the classes of deepspeed/_errors.py.
#include <exception>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"

#include "python/core/module/bindings.h"

namespace deepspeed::python {
namespace {

template <class Error>
void translate(std::exception_ptr thrown, const char* name) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    py::set_error(py::module_::import("deepspeed._errors").attr(name), as_utf8(error.what()).c_str());
  }
}

}  // namespace

void bind_errors(py::module_&) {
  // The translator registered last is tried first, so the base class is registered first.
  py::register_exception_translator([](std::exception_ptr e) { translate<Error>(e, "DeepSpeedError"); });
  py::register_exception_translator(
      [](std::exception_ptr e) { translate<CheckpointError>(e, "CheckpointError"); });
  py::register_exception_translator([](std::exception_ptr e) { translate<IoError>(e, "IoError"); });
  py::register_exception_translator([](std::exception_ptr e) {
    try {
      if (e) std::rethrow_exception(e);
    } catch (const CommError&) {
      // If Ctrl-C ended the call (interrupts.cpp), the exception of the script's handler replaces the error.
      if (PyErr_CheckSignals() == 0) translate<CommError>(e, "CommError");
    }
  });
  py::register_exception_translator(
      [](std::exception_ptr e) { translate<NotSupportedError>(e, "NotSupportedError"); });
  py::register_exception_translator([](std::exception_ptr e) { translate<ConfigError>(e, "ConfigError"); });
  py::register_exception_translator([](std::exception_ptr e) { translate<UsageError>(e, "UsageError"); });
}

}  // namespace deepspeed::python
