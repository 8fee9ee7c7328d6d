#include "deepspeed/optim/json_params.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/config/nearest_key.h"

namespace deepspeed::optim {

JsonParams::JsonParams(std::string path, const Json& params)
    : path_(std::move(path)), params_(params.is_null() ? Json::object() : params) {
  if (!params_.is_object()) {
    raise<ConfigError>("config", path_, ": ", params_.dump(), ", expected an object");
  }
}

const Json* JsonParams::find(const std::string& key) {
  known_.push_back(key);
  const auto it = params_.find(key);
  return it == params_.end() || it->is_null() ? nullptr : &*it;
}

bool JsonParams::contains(const std::string& key) { return find(key) != nullptr; }

double JsonParams::number(const std::string& key, double fallback) {
  const Json* value = find(key);
  if (value == nullptr) {
    return fallback;
  }
  if (!value->is_number()) {
    fail(key, message(value->dump(), ", expected a number"));
  }
  return value->get<double>();
}

double JsonParams::required_number(const std::string& key) {
  if (!contains(key)) {
    fail(key, "is missing and has no default");
  }
  return number(key, 0);
}

int64_t JsonParams::whole(const std::string& key, int64_t fallback) {
  const Json* value = find(key);
  if (value == nullptr) {
    return fallback;
  }
  if (!value->is_number_integer()) {
    fail(key, message(value->dump(), ", expected a whole number"));
  }
  return value->get<int64_t>();
}

bool JsonParams::flag(const std::string& key, bool fallback) {
  const Json* value = find(key);
  if (value == nullptr) {
    return fallback;
  }
  if (!value->is_boolean()) {
    fail(key, message(value->dump(), ", expected true or false"));
  }
  return value->get<bool>();
}

std::string JsonParams::text(const std::string& key, const std::string& fallback) {
  const Json* value = find(key);
  if (value == nullptr) {
    return fallback;
  }
  if (!value->is_string()) {
    fail(key, message(value->dump(), ", expected a string"));
  }
  return value->get<std::string>();
}

std::pair<double, double> JsonParams::pair(const std::string& key, std::pair<double, double> fallback) {
  const Json* value = find(key);
  if (value == nullptr) {
    return fallback;
  }
  if (!value->is_array() || value->size() != 2 || !(*value)[0].is_number() || !(*value)[1].is_number()) {
    fail(key, message(value->dump(), ", expected a list of two numbers"));
  }
  return {(*value)[0].get<double>(), (*value)[1].get<double>()};
}

std::vector<double> JsonParams::numbers(const std::string& key, const std::vector<double>& fallback) {
  const Json* value = find(key);
  if (value == nullptr) {
    return fallback;
  }
  if (value->is_number()) {
    return std::vector<double>(fallback.size(), value->get<double>());
  }
  const bool all_numbers =
      value->is_array() &&
      std::all_of(value->begin(), value->end(), [](const Json& item) { return item.is_number(); });
  if (!all_numbers) {
    fail(key, message(value->dump(), ", expected a number or a list of numbers"));
  }
  if (value->size() != fallback.size()) {
    fail(key, message(value->size(), " numbers, expected one for each of the ", fallback.size(),
                      " parameter groups"));
  }
  return value->get<std::vector<double>>();
}

std::vector<double> JsonParams::required_numbers(const std::string& key, size_t count) {
  if (!contains(key)) {
    fail(key, "is missing and has no default");
  }
  return numbers(key, std::vector<double>(count));
}

void JsonParams::reject_unknown() const {
  for (const auto& [key, value] : params_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) {
      continue;
    }
    const std::string nearest = config::nearest_key(key, known_);
    fail(key, nearest.empty() ? "unknown key" : message("unknown key, did you mean '", nearest, "'?"));
  }
}

void JsonParams::fail(const std::string& key, const std::string& what) const {
  raise<ConfigError>("config", path_, ".", key, ": ", what);
}

}  // namespace deepspeed::optim
