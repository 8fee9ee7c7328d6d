#include "python/core/objects/json.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

namespace deepspeed::python {
namespace {

bool is_instance(const py::handle& object, const char* module, const char* name) {
  return py::isinstance(object, py::module_::import(module).attr(name));
}

constexpr int kMaxJsonLevels = 190;  // as for other values from Python
thread_local int json_depth = 0;

/// Counts the recursion depth of to_json(). Throws ValueError beyond a limit, because the stack is finite.
class JsonLevel {
 public:
  explicit JsonLevel(const std::string& path) {
    if (++json_depth <= kMaxJsonLevels) return;
    --json_depth;
    throw py::value_error(path.substr(0, 80) + "...: nested deeper than " + std::to_string(kMaxJsonLevels) +
                          " levels, or a part of itself");
  }
  ~JsonLevel() { --json_depth; }
  JsonLevel(const JsonLevel&) = delete;
  JsonLevel& operator=(const JsonLevel&) = delete;
};

std::string text_of(const py::handle& object, const std::string& path) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (text != nullptr) return {text, size_t(size)};
  PyErr_Clear();  // half of a surrogate pair, which an escape in JSON text can make
  throw py::value_error((path.empty() ? "a key" : path) + ": got the text " +
                        py::str(py::module_::import("builtins").attr("ascii")(object)).cast<std::string>() +
                        ", which is no text of UTF-8");
}

Json integer_of(const py::handle& object, const std::string& path) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow == 0 && !(number == -1 && PyErr_Occurred() != nullptr)) return int64_t(number);
  PyErr_Clear();
  const auto bits = object.attr("bit_length")().cast<size_t>();
  throw py::value_error(path + ": got an integer of " + std::to_string(bits) +
                        " bits, expected at most 64 bits");
}

Json from_mapping(const py::handle& object, const std::string& path) {
  Json result = Json::object();
  for (const py::handle& item : object.attr("items")()) {
    const auto pair = item.cast<py::tuple>();
    const std::string key = text_of(py::str(pair[0]), path);
    result[key] = to_json(pair[1], path.empty() ? key : path + "." + key);
  }
  return result;
}

}  // namespace

Json to_json(const py::handle& object, const std::string& path) {
  const JsonLevel level(path);
  if (object.is_none()) return nullptr;
  if (py::isinstance<py::bool_>(object)) return object.cast<bool>();
  if (is_instance(object, "enum", "Enum")) return to_json(object.attr("value"), path);
  if (py::isinstance<py::int_>(object)) return integer_of(object, path);
  if (py::isinstance<py::float_>(object)) return object.cast<double>();
  if (py::isinstance<py::str>(object)) return text_of(object, path);
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
  // A NumPy number or a one-element tensor.
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
