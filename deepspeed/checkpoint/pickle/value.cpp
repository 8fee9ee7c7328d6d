// Reads values by type, and keeps dicts in insertion order.
//
// The as_...() functions accept every form in which Python may have written a value: a whole double or a 0-d
// tensor for an integer, a tuple for a list. For anything else they throw a CheckpointError that names the
// expected and the actual kind. A small Dict is searched item by item. For a larger one, set() keeps the
// positions of keys in a map, which any other change of the items discards.
#include "deepspeed/checkpoint/pickle/value.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include <c10/core/Scalar.h>

#include "deepspeed/base/error.h"

namespace deepspeed::checkpoint {
namespace {

[[noreturn]] void raise_kind(const char* expected, const Value& value) {
  raise<CheckpointError>("a ", expected, " was expected, got a ", value.kind());
}

bool is_scalar_tensor(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 0 && !tensor.is_meta();
}

using DictKey = std::variant<int64_t, std::string>;

/// Returns the key if it is a string or an integer, otherwise nothing.
std::optional<DictKey> key_of(const Value& value) {
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* number = value.get_if<int64_t>()) return *number;
  return std::nullopt;
}

bool is_key(const Value& value, const DictKey& key) {
  const auto* text = value.get_if<std::string>();
  const auto* number = value.get_if<int64_t>();
  if (text != nullptr) return std::holds_alternative<std::string>(key) && *text == std::get<std::string>(key);
  return number != nullptr && std::holds_alternative<int64_t>(key) && *number == std::get<int64_t>(key);
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

void Dict::forget_places() { places_ = {}; }

void Dict::note_places() {
  constexpr size_t kSmall = 32;
  if (items_.size() < kSmall) return;
  if (places_.get() == nullptr) places_ = Boxed(Places());
  auto& [by_key, num_noted] = *places_.get();
  for (; num_noted < items_.size(); ++num_noted) {
    if (auto key = key_of(items_[num_noted].first)) by_key.try_emplace(std::move(*key), num_noted);
  }
}

void Dict::set(Value key, Value value) {
  note_places();
  const size_t place = place_of(key);
  if (place < items_.size()) {
    items_[place].second = std::move(value);
  } else {
    items_.emplace_back(std::move(key), std::move(value));
  }
}

size_t Dict::place_of(const Value& key) const {
  if (const auto known = key_of(key)) return place_of_key(*known);
  const auto has_key = [&](const auto& item) { return same_key(item.first, key); };
  return static_cast<size_t>(std::ranges::find_if(items_, has_key) - items_.begin());
}

size_t Dict::place_of_key(const Key& key) const {
  size_t first = 0;
  if (const Places* places = places_.get()) {
    if (const auto noted = places->by_key.find(key); noted != places->by_key.end()) return noted->second;
    first = places->num_noted;
  }
  const auto has_key = [&](const auto& item) { return is_key(item.first, key); };
  return static_cast<size_t>(std::find_if(items_.begin() + int64_t(first), items_.end(), has_key) -
                             items_.begin());
}

const Value* Dict::find_key(const Key& key) const {
  const size_t place = place_of_key(key);
  return place < items_.size() ? &items_[place].second : nullptr;
}

const Value* Dict::find(const std::string& key) const { return find_key(key); }

const Value* Dict::find(int64_t key) const { return find_key(key); }

const Value& Dict::at(const std::string& key) const {
  const Value* value = find(key);
  if (value == nullptr) raise<CheckpointError>("the key '", key, "' is missing");
  return *value;
}

Value Value::bytes(std::vector<uint8_t> value) {
  Value result;
  result.data_ = std::move(value);
  return result;
}

Value Value::integer(std::vector<uint8_t> bytes) {
  const auto sign_of = [](uint8_t highest) { return uint8_t((highest & 0x80) != 0 ? 0xFF : 0x00); };
  // The highest byte is redundant if it repeats the sign of the one below.
  while (bytes.size() > 1 && bytes.back() == sign_of(bytes[bytes.size() - 2])) bytes.pop_back();
  if (bytes.size() > sizeof(int64_t)) return BigInt{std::move(bytes)};
  bytes.resize(sizeof(int64_t), bytes.empty() ? uint8_t{0} : sign_of(bytes.back()));
  uint64_t number = 0;
  for (size_t index = 0; index < bytes.size(); ++index) number |= uint64_t(bytes[index]) << (8 * index);
  return int64_t(number);
}

bool Value::as_bool() const {
  if (const auto* flag = get_if<bool>()) return *flag;
  raise_kind("bool", *this);
}

int64_t Value::as_int() const {
  if (const auto* number = get_if<int64_t>()) return *number;
  if (const auto* number = get_if<double>()) {
    // Both limits are exact powers of two, so the comparison itself does not round.
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
      "None",        "bool",      "int",
      "float",       "str",       "bytes",
      "tensor",      "list",      "tuple",
      "set",         "dict",      "torch.Size",
      "torch.dtype", "object",    "class or function",
      "frozenset",   "bytearray", "int beyond 64 bits",
      "complex"};
  if (const auto* object = get_if<Object>()) {
    return object->callable ? "result of a " + object->callable->kind() : object->module + "." + object->name;
  }
  if (const auto* global = get_if<Global>()) {
    return "class or function " + global->module + "." + global->name;
  }
  return kNames[data_.index()];
}

}  // namespace deepspeed::checkpoint
