#include "deepspeed/launcher/link/fields.h"

#include <climits>
#include <cstdint>
#include <utility>

#include "deepspeed/base/text.h"

namespace deepspeed::launcher {
namespace {

constexpr const char* kKindKey = "t";
constexpr size_t kMostShown = 60;  // characters of a wrong value

/// Reads a whole number from `least` to `most`. Returns false, with `number` unchanged, for any other value.
template <class Number>
bool read_whole_number(const Json& json, int64_t least, int64_t most, Number& number) {
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) return false;
  if (!json.is_number_integer() || json.get<int64_t>() < least || json.get<int64_t>() > most) return false;
  number = static_cast<Number>(json.get<int64_t>());
  return true;
}

}  // namespace

std::string kind_of(const Json& json) {
  const auto kind = json.is_object() ? json.find(kKindKey) : json.end();
  return kind != json.end() && kind->is_string() ? kind->get<std::string>() : std::string();
}

Fields::Fields(Json* json, const char* kind) : written_(json) {
  *json = Json::object();
  write(kKindKey, std::string(kind));
}

void Fields::write(const char* key, const Bytes& bytes) { write(key, encode_base64(bytes.raw)); }

const Json& Fields::field(const char* key) const {
  const auto found = read_->find(key);
  if (found == read_->end()) raise<MessageError>("the message '", kind_of(*read_), "' has no '", key, "'");
  return *found;
}

const char* Fields::read(const char* key, std::string& text) const {
  if (!field(key).is_string()) return "a text";
  text = field(key).get<std::string>();
  return nullptr;
}

const char* Fields::read(const char* key, int& number) const {
  return read_whole_number(field(key), INT_MIN, INT_MAX, number) ? nullptr : "a whole number";
}

const char* Fields::read(const char* key, size_t& number) const {
  return read_whole_number(field(key), 0, INT64_MAX, number) ? nullptr : "a whole number of at least 0";
}

const char* Fields::read(const char* key, bool& flag) const {
  if (!field(key).is_boolean()) return "true or false";
  flag = field(key).get<bool>();
  return nullptr;
}

const char* Fields::read(const char* key, Bytes& bytes) const {
  auto raw = field(key).is_string() ? decode_base64(field(key).get<std::string>()) : std::nullopt;
  if (!raw) return "a text in base64";
  bytes.raw = *std::move(raw);
  return nullptr;
}

void Fields::refuse(const char* key, const char* expected) const {
  const Json& found = field(key);
  // dump() recurses as deeply as the value is nested, which could overflow the stack.
  std::string value = found.is_array()    ? "[...]"
                      : found.is_object() ? "{...}"
                                          : found.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (value.size() > kMostShown) value = value.substr(0, kMostShown) + "...";
  raise<MessageError>("the message '", kind_of(*read_), "' has '", key, "' ", value, ", expected ", expected);
}

}  // namespace deepspeed::launcher
