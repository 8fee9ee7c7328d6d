// Writes and reads messages (messages.h). Each kind lists its fields once, for both directions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"

namespace deepspeed::launcher {

/// Reports a message of an unexpected kind, or with a wrong field.
class MessageError : public IoError {
 public:
  using IoError::IoError;
};

/// Holds bytes that a message carries in base64.
struct Bytes {
  std::string raw;
};

/// Returns the kind of a message, or "" for JSON that is no message.
std::string kind_of(const Json& json);

/// Writes or reads the fields of a message, one call for each.
class Fields {
 public:
  /// Makes an empty message of `json` and writes the fields into it.
  Fields(Json* json, const char* kind);
  /// Reads the fields. Throws MessageError for one that is missing or has another type.
  explicit Fields(const Json& json) : read_(&json) {}

  template <class Value>
  Fields& operator()(const char* key, Value& value) {
    if (written_ != nullptr) {
      write(key, value);
    } else if (const char* expected = read(key, value)) {
      refuse(key, expected);
    }
    return *this;
  }

  /// Writes or reads an optional field. A default value is not written; a missing field leaves `value`
  /// unchanged.
  template <class Value>
  Fields& maybe(const char* key, Value& value) {
    return has(key, value != Value{}) ? (*this)(key, value) : *this;
  }
  template <class Value>
  Fields& maybe(const char* key, std::optional<Value>& value) {
    return has(key, value.has_value()) ? (*this)(key, value ? *value : value.emplace()) : *this;
  }

 private:
  template <class Value>
  void write(const char* key, const Value& value) {
    (*written_)[key] = value;
  }
  void write(const char* key, const Bytes& bytes);
  // These return null, or the type that was expected.
  const char* read(const char* key, std::string& text) const;
  const char* read(const char* key, int& number) const;
  const char* read(const char* key, size_t& number) const;
  const char* read(const char* key, bool& flag) const;
  const char* read(const char* key, Bytes& bytes) const;
  const Json& field(const char* key) const;
  [[noreturn]] void refuse(const char* key, const char* expected) const;
  bool has(const char* key, bool is_set) const { return written_ != nullptr ? is_set : read_->contains(key); }

  Json* written_ = nullptr;
  const Json* read_ = nullptr;
};

template <class Kind>
concept Message = requires {
  Kind::kKind;
};

/// Returns the message as JSON.
template <Message Kind>
Json to_json(Kind message) {
  Json json;
  Fields each(&json, Kind::kKind);
  if constexpr (requires { message.fields(each); }) message.fields(each);
  return json;
}

/// Reads a message of this kind. Returns nothing for another kind. Throws MessageError for wrong fields.
template <Message Kind>
std::optional<Kind> as(const Json& json) {
  if (kind_of(json) != Kind::kKind) return std::nullopt;
  Kind message;
  Fields each(json);
  if constexpr (requires { message.fields(each); }) message.fields(each);
  return message;
}

/// Throws MessageError if the message has none of these kinds.
template <Message... Kinds>
void expect_one_of(const Json& json) {
  const std::string kind = kind_of(json);
  if (((kind != Kinds::kKind) && ...)) raise<MessageError>("a message '", kind, "' was not expected");
}

}  // namespace deepspeed::launcher
