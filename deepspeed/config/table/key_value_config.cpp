#include "deepspeed/config/table/key_value_config.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/config/table/nearest_key.h"
#include "deepspeed/config/table/read.h"

namespace deepspeed::config {
namespace {

constexpr const char* kPrefix = "[config] ";

/// Throws the error of a config inside again, with the path that it has from outside.
[[noreturn]] void raise_below(const std::string& key, const ConfigError& error) {
  const std::string text = error.what();
  const size_t start = text.starts_with(kPrefix) ? std::char_traits<char>::length(kPrefix) : 0;
  throw ConfigError(kPrefix + key + "." + text.substr(start));
}

void require_dict(const Json& dict) {
  if (!dict.is_object()) raise<ConfigError>("got ", json_excerpt(dict), ", expected key/value pairs");
  require_bounded_depth(dict);
}

[[noreturn]] void fail_missing(const std::string& key, const std::vector<std::string>& known) {
  const std::string nearest = nearest_key(key, known);
  raise<ConfigError>(path_part(key), ": unknown key, expected one that the config has",
                     nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
}

}  // namespace

Config::Config(Pairs pairs) {
  for (const auto& [key, value] : pairs) values_[key] = value;
}

Config Config::from_dict(const Json& dict) {
  require_dict(dict);
  Config config;
  config.values_ = dict;
  return config;
}

void Config::update(Pairs pairs) {
  if (pairs.size() == 0) return;  // a class's own table is not asked for while it is being made
  Json dict = Json::object();
  for (const auto& [key, value] : pairs) {
    if (dict.contains(key)) raise<ConfigError>(path_part(key), ": the key is given twice, expected once");
    dict[key] = value;
  }
  update(dict);
}

void Config::update(const Json& dict) {
  require_dict(dict);
  assign(dict);
}

void Config::set(const std::string& key, const Json& value) { update(Json::object({{key, value}})); }

void Config::assign(const Json& dict) {
  for (const auto& [key, value] : dict.items()) values_[key] = value;
}

Json Config::operator[](const std::string& key) const {
  const std::string name = present_name(key);
  const Json dict = to_dict();
  const auto found = dict.find(name);
  if (found != dict.end()) return *found;
  std::vector<std::string> known;
  for (const auto& [other, unused] : dict.items()) known.push_back(other);
  fail_missing(key, known);
}

bool Config::contains(const std::string& key) const {
  try {
    return to_dict().contains(present_name(key));
  } catch (const ConfigError&) {
    return false;
  }
}

void Config::resolve(int64_t world_size) {
  for (const auto& [key, config] : sub_configs()) config->resolve(world_size);
  resolve_own(world_size);
}

void Config::validate(int64_t world_size) {
  resolve(world_size);
  for (const auto& [key, config] : sub_configs()) {
    try {
      config->validate(world_size);
    } catch (const ConfigError& error) {
      raise_below(key, error);
    }
  }
  check_own(world_size);
}

bool Config::is_valid(int64_t world_size) {
  try {
    validate(world_size);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

std::string present_name_in(const Field& section, const std::string& key) {
  std::vector<std::string> known;
  for (const Field& field : section.children) {
    const auto& aliases = field.aliases;
    if (field.key == key || std::find(aliases.begin(), aliases.end(), key) != aliases.end()) return field.key;
    known.push_back(field.key);
    known.insert(known.end(), aliases.begin(), aliases.end());
  }
  fail_missing(key, known);
}

Json read_dict(const Field& section, const Json& dict) { return read_section(section, dict, ""); }

}  // namespace deepspeed::config
