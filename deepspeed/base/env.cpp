#include "deepspeed/base/env.h"

#include <charconv>
#include <cstdlib>

#include "deepspeed/base/error.h"

namespace deepspeed::env {

std::optional<std::string> get(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<int64_t> get_int(const char* name) {
  const auto text = get(name);
  if (!text) return std::nullopt;
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (status != std::errc() || end != text->data() + text->size()) {
    raise<UsageError>("the variable ", name, " is '", *text, "', expected a whole number");
  }
  return value;
}

void set(const char* name, const std::optional<std::string>& value) {
  if (value) {
    ::setenv(name, value->c_str(), 1);
  } else {
    ::unsetenv(name);
  }
}

}  // namespace deepspeed::env
