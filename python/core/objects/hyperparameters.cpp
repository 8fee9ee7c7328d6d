#include "python/core/objects/hyperparameters.h"

#include <utility>
#include <variant>

#include <torch/csrc/autograd/python_variable.h>

namespace deepspeed::python {

py::dict to_dict(const optim::Hyperparameters& options) {
  py::dict dict;
  for (const auto& [name, value] : options.items()) {
    dict[py::str(name)] = std::visit([](const auto& held) -> py::object { return py::cast(held); }, value);
  }
  return dict;
}

bool set_option(optim::Hyperparameters& options, const std::string& name, const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) {
    options.set(name, value.cast<bool>());
  } else if (py::isinstance<py::int_>(value)) {
    options.set(name, static_cast<double>(value.cast<int64_t>()));
  } else if (py::isinstance<py::float_>(value)) {
    options.set(name, value.cast<double>());
  } else if (py::isinstance<py::str>(value)) {
    options.set(name, value.cast<std::string>());
  } else if (THPVariable_Check(value.ptr()) && value.attr("numel")().cast<int64_t>() == 1) {
    options.set(name, value.attr("item")().cast<double>());
  } else if (py::isinstance<py::sequence>(value) && py::len(value) == 2) {
    options.set(name, value.cast<std::pair<double, double>>());
  } else {
    return false;
  }
  return true;
}

}  // namespace deepspeed::python
