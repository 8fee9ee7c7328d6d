#include "python/core/objects/json.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

namespace deepspeed::python {
namespace {

bool is_instance(const py::handle& object, const char* module, const char* name) {
  return py::isinstance(object, py::module_::import(module).attr(name));
}

Json from_mapping(const py::handle& object, const std::string& path) {
  Json result = Json::object();
  for (const py::handle& item : object.attr("items")()) {
    const auto pair = item.cast<py::tuple>();
    const auto key = py::str(pair[0]).cast<std::string>();
    result[key] = to_json(pair[1], path.empty() ? key : path + "." + key);
  }
  return result;
}

}  // namespace

Json to_json(const py::handle& object, const std::string& path) {
  if (object.is_none()) return nullptr;
  if (py::isinstance<py::bool_>(object)) return object.cast<bool>();
  if (is_instance(object, "enum", "Enum")) return to_json(object.attr("value"), path);
  if (py::isinstance<py::int_>(object)) return object.cast<int64_t>();
  if (py::isinstance<py::float_>(object)) return object.cast<double>();
  if (py::isinstance<py::str>(object)) return object.cast<std::string>();
  if (is_instance(object, "collections.abc", "Mapping")) return from_mapping(object, path);
  if (py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object)) {
    Json items = Json::array();
    for (const py::handle& item : object) items.push_back(to_json(item, path + "[]"));
    return items;
  }
  if (THPDtype_Check(object.ptr())) {
    return py::str(object).cast<std::string>().substr(std::string("torch.").size());
  }
  if (py::hasattr(object, "__fspath__")) {
    return py::module_::import("os").attr("fspath")(object).cast<std::string>();
  }
  // A number of NumPy, or a tensor of one element.
  if (py::hasattr(object, "item") && py::hasattr(object, "dtype"))
    return to_json(object.attr("item")(), path);
  throw py::type_error(path + ": got " + py::repr(py::type::of(object)).cast<std::string>() +
                       ", expected what JSON has: numbers, text, lists and dicts");
}

py::object from_json(const Json& value) {
  switch (value.type()) {
    case Json::value_t::boolean:
      return py::bool_(value.get<bool>());
    case Json::value_t::number_integer:
      return py::int_(value.get<int64_t>());
    case Json::value_t::number_unsigned:
      return py::int_(value.get<uint64_t>());
    case Json::value_t::number_float:
      return py::float_(value.get<double>());
    case Json::value_t::string:
      return py::str(value.get<std::string>());
    case Json::value_t::array: {
      py::list items;
      for (const Json& item : value) items.append(from_json(item));
      return items;
    }
    case Json::value_t::object: {
      py::dict dict;
      for (const auto& [key, item] : value.items()) dict[py::str(key)] = from_json(item);
      return dict;
    }
    default:
      return py::none();
  }
}

}  // namespace deepspeed::python
