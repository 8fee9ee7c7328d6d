// Converts between Python objects and the values that checkpoint files hold.
//
// to_value() tests for the types that files have a form for, from None to frozenset. Any other object goes to
// from_object(): `describe` of deepspeed/_objects takes the object apart as pickle would, or refuses it.
// Errors name the object's path, such as "client_state.stats[0]". from_value() goes the other way. Objects
// are rebuilt by `build` of deepspeed/_objects, which makes only what its lists allow. Errors become
// CheckpointErrors (with_place).
#include "python/core/objects/values.h"

#include <complex>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/python_variable.h>

#include <pybind11/complex.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"

namespace deepspeed::python {
namespace {

using checkpoint::Value;

std::vector<Value> items_of(const py::handle& sequence, const std::string& path) {
  std::vector<Value> values;
  for (const auto& item : sequence)
    values.push_back(to_value(item, path + "[" + std::to_string(values.size()) + "]"));
  return values;
}

py::list value_list(const std::vector<Value>& values) {
  py::list list;
  for (const Value& value : values) list.append(from_value(value));
  return list;
}

// The deepest nesting that files may have. An object that contains itself exceeds it.
constexpr int kMaxDepth = 190;
thread_local int depth = 0;

/// Counts one more level of containers until it is destroyed. Throws TypeError beyond kMaxDepth.
struct Level {
  explicit Level(const std::string& path) {
    if (++depth <= kMaxDepth) return;
    --depth;
    throw py::type_error(path.substr(0, 200) + ": nested deeper than " + std::to_string(kMaxDepth) +
                         " levels, or holding itself: a checkpoint cannot hold it");
  }
  ~Level() { --depth; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
};

py::object objects() { return py::module_::import("deepspeed._objects"); }

bool is_exactly(const py::handle& object, PyTypeObject* type) { return Py_TYPE(object.ptr()) == type; }

bool is_ordered_dict(const py::handle& object) {
  return py::type::of(object).is(py::module_::import("collections").attr("OrderedDict"));
}

Value from_int(const py::handle& object) {
  const py::object bits = object.attr("bit_length")();
  const py::object bytes =
      object.attr("to_bytes")(bits.cast<size_t>() / 8 + 1, "little", py::arg("signed") = true);
  const auto text = bytes.cast<std::string>();
  return Value::integer({text.begin(), text.end()});
}

std::vector<uint8_t> bytes_of(const py::handle& object) {
  const py::bytes bytes = py::module_::import("builtins").attr("bytes")(object);
  const auto text = bytes.cast<std::string>();
  return {text.begin(), text.end()};
}

/// Returns a text in UTF-8. The Python error handler `errors` writes what UTF-8 cannot express.
std::string encoded(const py::handle& text, const char* errors) {
  auto* bytes = PyUnicode_AsEncodedString(text.ptr(), "utf-8", errors);
  if (bytes == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::bytes>(bytes).cast<std::string>();
}

// Python texts and pickles may contain single surrogates.
constexpr const char* kKeepSurrogates = "surrogatepass";

py::object text_of(const std::string& utf8) {
  auto* text = PyUnicode_DecodeUTF8(utf8.data(), static_cast<Py_ssize_t>(utf8.size()), kKeepSurrogates);
  if (text == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(text);
}

using Making = checkpoint::Object::Making;

Value from_object(const py::handle& object, const std::string& path) {
  const py::tuple described = objects().attr("describe")(object, path);
  const auto module = described[1].cast<std::string>(), name = described[2].cast<std::string>();
  if (described[0].cast<std::string>() == "global") return checkpoint::Global{module, name};
  checkpoint::Object made{module, name, items_of(described[4], path + "(...)"), nullptr};
  const auto making = described[3].cast<std::string>();
  made.making = making == "call" ? Making::kCall : making == "new" ? Making::kNew : Making::kNewWithKeywords;
  for (const auto& [key, value] : described[5].cast<py::dict>())
    made.keywords.emplace_back(to_value(key, path), to_value(value, path));
  if (!described[6].is_none())
    made.state = std::make_shared<Value>(to_value(described[6], path + ".__dict__"));
  if (!described[7].is_none()) made.list_items = items_of(described[7], path);
  if (!described[8].is_none()) {
    for (const py::handle& pair : described[8].cast<py::list>()) {
      const auto entry = pair.cast<py::tuple>();
      made.dict_items.emplace_back(to_value(entry[0], path), to_value(entry[1], path));
    }
  }
  return made;
}

py::list pairs_of(const checkpoint::Object::Pairs& pairs) {
  py::list list;
  for (const auto& [key, value] : pairs) list.append(py::make_tuple(from_value(key), from_value(value)));
  return list;
}

py::object build(const checkpoint::Object& object) {
  const py::object callable = object.callable ? from_value(*object.callable) : py::object(py::none());
  py::dict keywords;
  for (const auto& [key, value] : object.keywords) keywords[from_value(key)] = from_value(value);
  const char* making = object.making == Making::kCall ? "call" : "new";
  return objects().attr("build")(object.module, object.name, callable, making,
                                 py::tuple(value_list(object.arguments)), keywords,
                                 object.state ? from_value(*object.state) : py::object(py::none()),
                                 value_list(object.list_items), pairs_of(object.dict_items));
}

Value from_dict(const py::handle& object, const std::string& path) {
  checkpoint::Dict dict(is_ordered_dict(object));
  for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(object)) {
    const std::string name = path + "." + encoded(py::str(key), "backslashreplace");
    dict.items().emplace_back(to_value(key, name), to_value(value, name));
  }
  return dict;
}

/// Calls `make` and returns its result. Python errors become CheckpointErrors that begin with `place`.
template <class Make>
auto with_place(const std::string& place, const Make& make) {
  try {
    return make();
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;  // such as Ctrl-C
    const bool is_ours = error.matches(py::module_::import("deepspeed._errors").attr("CheckpointError"));
    const auto type = error.type().attr("__name__").cast<std::string>() + ": ";
    raise<CheckpointError>(place, ": ", is_ours ? "" : type,
                           encoded(py::str(error.value()), "backslashreplace"));
  }
}

}  // namespace

Value to_value(const py::handle& object, const std::string& path) {
  const Level level(path);
  if (object.is_none()) return {};
  if (THPVariable_Check(object.ptr())) return THPVariable_Unpack(object.ptr());
  if (py::isinstance<py::bool_>(object)) return object.cast<bool>();
  if (is_exactly(object, &PyLong_Type)) return from_int(object);
  if (is_exactly(object, &PyFloat_Type)) return object.cast<double>();
  if (is_exactly(object, &PyUnicode_Type)) return encoded(object, kKeepSurrogates);
  if (is_exactly(object, &PyBytes_Type)) return Value::bytes(bytes_of(object));
  if (is_exactly(object, &PyByteArray_Type)) return checkpoint::ByteArray{bytes_of(object)};
  if (is_exactly(object, &PyComplex_Type)) return object.cast<std::complex<double>>();
  if (THPDtype_Check(object.ptr())) {
    return checkpoint::DType{reinterpret_cast<THPDtype*>(object.ptr())->scalar_type};
  }
  if (is_exactly(object, &PyDict_Type) || is_ordered_dict(object)) return from_dict(object, path);
  if (py::isinstance(object, py::module_::import("torch").attr("Size"))) {
    return checkpoint::Size{object.cast<std::vector<int64_t>>()};
  }
  if (is_exactly(object, &PyTuple_Type)) return checkpoint::Tuple{items_of(object, path)};
  if (is_exactly(object, &PyList_Type)) return items_of(object, path);
  if (is_exactly(object, &PySet_Type)) return checkpoint::Set{items_of(object, path)};
  if (is_exactly(object, &PyFrozenSet_Type)) return checkpoint::FrozenSet{items_of(object, path)};
  return from_object(object, path);
}

py::object from_value(const Value& value) {
  return std::visit(
      [](const auto& held) -> py::object {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, checkpoint::None>) {
          return py::none();
        } else if constexpr (std::is_same_v<T, std::string>) {
          return text_of(held);
        } else if constexpr (std::is_same_v<T, std::vector<uint8_t>>) {
          return py::bytes(reinterpret_cast<const char*>(held.data()), held.size());
        } else if constexpr (std::is_same_v<T, checkpoint::List>) {
          return value_list(held);
        } else if constexpr (std::is_same_v<T, checkpoint::Tuple>) {
          return py::tuple(value_list(held.items));
        } else if constexpr (std::is_same_v<T, checkpoint::Set>) {
          return py::set(value_list(held.items));
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
        } else if constexpr (std::is_same_v<T, checkpoint::FrozenSet>) {
          return py::reinterpret_steal<py::object>(PyFrozenSet_New(value_list(held.items).ptr()));
        } else if constexpr (std::is_same_v<T, checkpoint::ByteArray>) {
          return py::reinterpret_steal<py::object>(PyByteArray_FromStringAndSize(
              reinterpret_cast<const char*>(held.bytes.data()), static_cast<Py_ssize_t>(held.bytes.size())));
        } else if constexpr (std::is_same_v<T, checkpoint::BigInt>) {
          const py::bytes bytes(reinterpret_cast<const char*>(held.bytes.data()), held.bytes.size());
          return py::module_::import("builtins")
              .attr("int")
              .attr("from_bytes")(bytes, "little", py::arg("signed") = true);
        } else if constexpr (std::is_same_v<T, checkpoint::Boxed<checkpoint::Global>>) {
          return objects().attr("find")(held.get()->module, held.get()->name);
        } else if constexpr (std::is_same_v<T, checkpoint::Boxed<checkpoint::Object>>) {
          return build(*held.get());
        } else {
          return py::cast(held);
        }
      },
      value.data());
}

py::object from_value_of(const std::string& place, const Value& value) {
  return with_place(place, [&] { return from_value(value); });
}

py::dict from_named_values(const checkpoint::Dict& values, const std::string& path) {
  py::dict made;
  for (const auto& entry : values.items()) {
    const auto* name = entry.first.get_if<std::string>();
    const std::string place =
        path + "." + (name == nullptr ? "(" + entry.first.kind() + ")" : as_utf8(*name));
    with_place(place, [&] { made[from_value(entry.first)] = from_value(entry.second); });
  }
  return made;
}

}  // namespace deepspeed::python
