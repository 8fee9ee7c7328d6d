#include "python/core/values.h"

#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/python_variable.h>

namespace deepspeed::python {
namespace {

using checkpoint::Value;

std::vector<Value> items_of(const py::handle& sequence, const std::string& path) {
  std::vector<Value> values;
  for (const auto& item : sequence)
    values.push_back(to_value(item, path + "[" + std::to_string(values.size()) + "]"));
  return values;
}

py::list list_of(const std::vector<Value>& values) {
  py::list list;
  for (const Value& value : values) list.append(from_value(value));
  return list;
}

Value from_dict(const py::handle& object, const std::string& path) {
  checkpoint::Dict dict(py::isinstance(object, py::module_::import("collections").attr("OrderedDict")));
  for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(object)) {
    const std::string name = path + "." + py::str(key).cast<std::string>();
    dict.set(to_value(key, name), to_value(value, name));
  }
  return dict;
}

}  // namespace

Value to_value(const py::handle& object, const std::string& path) {
  if (object.is_none()) return {};
  if (py::isinstance<py::bool_>(object)) return object.cast<bool>();
  if (THPVariable_Check(object.ptr())) return THPVariable_Unpack(object.ptr());
  if (py::isinstance<py::int_>(object)) return object.cast<int64_t>();
  if (py::isinstance<py::float_>(object)) return object.cast<double>();
  if (py::isinstance<py::str>(object)) return object.cast<std::string>();
  if (py::isinstance<py::bytes>(object)) {
    const auto text = object.cast<std::string>();
    return Value::bytes({text.begin(), text.end()});
  }
  if (THPDtype_Check(object.ptr())) {
    return checkpoint::DType{reinterpret_cast<THPDtype*>(object.ptr())->scalar_type};
  }
  if (py::isinstance<py::dict>(object)) return from_dict(object, path);
  if (py::isinstance(object, py::module_::import("torch").attr("Size"))) {
    return checkpoint::Size{object.cast<std::vector<int64_t>>()};
  }
  if (py::isinstance<py::tuple>(object)) return checkpoint::Tuple{items_of(object, path)};
  if (py::isinstance<py::list>(object)) return items_of(object, path);
  if (py::isinstance<py::set>(object)) return checkpoint::Set{items_of(object, path)};
  throw py::type_error(path + ": " + py::str(py::type::of(object)).cast<std::string>() +
                       " cannot stand in a checkpoint; numbers, text, tensors and containers of them can");
}

py::object from_value(const Value& value) {
  return std::visit(
      [](const auto& held) -> py::object {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, checkpoint::None>) {
          return py::none();
        } else if constexpr (std::is_same_v<T, std::vector<uint8_t>>) {
          return py::bytes(reinterpret_cast<const char*>(held.data()), held.size());
        } else if constexpr (std::is_same_v<T, checkpoint::List>) {
          return list_of(held);
        } else if constexpr (std::is_same_v<T, checkpoint::Tuple>) {
          return py::tuple(list_of(held.items));
        } else if constexpr (std::is_same_v<T, checkpoint::Set>) {
          return py::set(list_of(held.items));
        } else if constexpr (std::is_same_v<T, checkpoint::Size>) {
          return py::module_::import("torch").attr("Size")(py::cast(held.dims));
        } else if constexpr (std::is_same_v<T, checkpoint::DType>) {
          return py::reinterpret_borrow<py::object>(
              reinterpret_cast<PyObject*>(torch::getTHPDtype(held.type)));
        } else if constexpr (std::is_same_v<T, checkpoint::Dict>) {
          py::object dict = held.ordered() ? py::module_::import("collections").attr("OrderedDict")()
                                           : py::object(py::dict());
          for (const auto& [key, item] : held.items()) dict[from_value(key)] = from_value(item);
          return dict;
        } else if constexpr (std::is_same_v<T, checkpoint::Object>) {
          throw py::type_error("an object of " + held.module + "." + held.name);
        } else {
          return py::cast(held);
        }
      },
      value.data());
}

}  // namespace deepspeed::python
