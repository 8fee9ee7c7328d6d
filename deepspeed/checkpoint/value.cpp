#include "deepspeed/checkpoint/value.h"

#include <array>
#include <cmath>

#include <c10/core/Scalar.h>

#include "deepspeed/base/error.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kValueWhere = "checkpoint.value";

[[noreturn]] void raise_kind(const char* expected, const Value& value) {
  raise<CheckpointError>(kValueWhere, "a ", expected, " was expected, got a ", value.kind());
}

bool is_scalar_tensor(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 0 && !tensor.is_meta();
}

bool same_key(const Value& left, const Value& right) {
  if (left.data().index() != right.data().index()) return false;
  if (const auto* text = left.get_if<std::string>()) return *text == *right.get_if<std::string>();
  if (const auto* number = left.get_if<int64_t>()) return *number == *right.get_if<int64_t>();
  if (const auto* number = left.get_if<double>()) return *number == *right.get_if<double>();
  if (const auto* flag = left.get_if<bool>()) return *flag == *right.get_if<bool>();
  return left.is_none();
}

}  // namespace

Dict::Dict(std::initializer_list<std::pair<Value, Value>> items) {
  for (const auto& [key, value] : items) set(key, value);
}

void Dict::set(Value key, Value value) {
  for (auto& item : items_) {
    if (same_key(item.first, key)) {
      item.second = std::move(value);
      return;
    }
  }
  items_.emplace_back(std::move(key), std::move(value));
}

const Value* Dict::find(const std::string& key) const {
  for (const auto& item : items_) {
    const auto* text = item.first.get_if<std::string>();
    if (text != nullptr && *text == key) return &item.second;
  }
  return nullptr;
}

const Value* Dict::find(int64_t key) const {
  for (const auto& item : items_) {
    const auto* number = item.first.get_if<int64_t>();
    if (number != nullptr && *number == key) return &item.second;
  }
  return nullptr;
}

const Value& Dict::at(const std::string& key) const {
  const Value* value = find(key);
  if (value == nullptr) raise<CheckpointError>(kValueWhere, "the key '", key, "' is missing");
  return *value;
}

Value Value::bytes(std::vector<uint8_t> value) {
  Value result;
  result.data_ = std::move(value);
  return result;
}

bool Value::as_bool() const {
  if (const auto* flag = get_if<bool>()) return *flag;
  raise_kind("bool", *this);
}

int64_t Value::as_int() const {
  if (const auto* number = get_if<int64_t>()) return *number;
  if (const auto* number = get_if<double>()) {
    // Both bounds are exact powers of two, so the comparison itself does not round.
    if (std::trunc(*number) == *number && *number >= -0x1p63 && *number < 0x1p63) return int64_t(*number);
  }
  if (const auto* tensor = get_if<at::Tensor>(); tensor != nullptr && is_scalar_tensor(*tensor)) {
    if (at::isIntegralType(tensor->scalar_type(), /*includeBool=*/false)) return tensor->item().toLong();
    if (at::isFloatingType(tensor->scalar_type())) return Value(tensor->item().toDouble()).as_int();
  }
  raise_kind("whole number", *this);
}

double Value::as_double() const {
  if (const auto* number = get_if<double>()) return *number;
  if (const auto* number = get_if<int64_t>()) return double(*number);
  if (const auto* tensor = get_if<at::Tensor>(); tensor != nullptr && is_scalar_tensor(*tensor)) {
    if (!at::isComplexType(tensor->scalar_type())) return tensor->item().toDouble();
  }
  raise_kind("number", *this);
}

const std::string& Value::as_string() const {
  if (const auto* text = get_if<std::string>()) return *text;
  raise_kind("text", *this);
}

const at::Tensor& Value::as_tensor() const {
  if (const auto* tensor = get_if<at::Tensor>()) return *tensor;
  raise_kind("tensor", *this);
}

const Dict& Value::as_dict() const {
  if (const auto* dict = get_if<Dict>()) return *dict;
  raise_kind("dict", *this);
}

const std::vector<Value>& Value::as_sequence() const {
  if (const auto* list = get_if<List>()) return *list;
  if (const auto* tuple = get_if<Tuple>()) return tuple->items;
  raise_kind("list", *this);
}

std::vector<int64_t> Value::as_size() const {
  if (const auto* size = get_if<Size>()) return size->dims;
  std::vector<int64_t> dims;
  for (const Value& item : as_sequence()) dims.push_back(item.as_int());
  return dims;
}

std::string Value::kind() const {
  static constexpr std::array<const char*, std::variant_size_v<Variant>> kNames = {
      "None", "bool",  "int", "float", "str",        "bytes",       "tensor",
      "list", "tuple", "set", "dict",  "torch.Size", "torch.dtype", "object"};
  if (const auto* object = get_if<Object>()) return object->module + "." + object->name;
  return kNames[data_.index()];
}

}  // namespace deepspeed::checkpoint
