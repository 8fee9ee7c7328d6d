// The config, which the core checks and resolves, and the log.
#include "deepspeed/config/config.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/version.h"
#include "deepspeed/config/table/field.h"
#include "deepspeed/config/table/nearest_key.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"
#include "python/core/objects/json.h"

namespace deepspeed::python {
namespace {

config::ConfigSource source_of(const py::dict& config) { return config::ConfigSource(to_json(config, "")); }

/// Returns the object that the text of a config describes. Errors name `where`.
py::object parse_config(const std::string& text, const std::string& where) {
  const Json value = parse_json(text, where);
  if (!value.is_object()) {
    raise<ConfigError>(where, ": got ", json_excerpt(value), ", expected a JSON object");
  }
  return from_json(value);
}

/// Returns the keys of a top-level section with their aliases. For "" or an unknown section these are the
/// top-level keys.
std::set<std::string> config_keys(const std::string& section) {
  const std::vector<config::Field>& top = config::all_options().children;
  const auto named =
      std::ranges::find_if(top, [&](const config::Field& field) { return field.key == section; });
  std::set<std::string> keys;
  for (const config::Field& field : named == top.end() ? top : named->children) {
    keys.insert(field.key);
    keys.insert(field.aliases.begin(), field.aliases.end());
  }
  return keys;
}

/// Returns the known top-level key with the nearest spelling, or "" if none is close.
std::string nearest_config_key(const std::string& key) {
  const std::set<std::string> keys = config_keys("");
  return config::nearest_key(key, {keys.begin(), keys.end()});
}

}  // namespace

void bind_config(py::module_& module) {
  module.def("version", &version);
  module.def("config_keys", &config_keys, "section"_a = "");
  module.def("nearest_config_key", &nearest_config_key, "key"_a);
  module.def("parse_config", &parse_config, "text"_a, "where"_a);
  module.def(
      "find_config",
      [](const std::string& path_or_text) { return from_json(config::ConfigSource(path_or_text).read()); },
      "path_or_text"_a);
  module.def(
      "load_config",
      [](const py::dict& config, int64_t world_size) {
        return from_json(config::to_json(config::load_config(source_of(config), world_size)));
      },
      "config"_a, "world_size"_a);
  module.def(
      "read_config",
      [](const py::dict& config, int64_t world_size) {
        return from_json(config::to_json(config::read_config(source_of(config), world_size)));
      },
      "config"_a, "world_size"_a);
  // The core's lines go to the package's logger, so that the script chooses level and handlers.
  module.def(
      "set_log_sink",
      [](const py::object& write) {
        log::set_sink([call = hold(write)](log::Level level, const std::string& line) {
          if (Py_IsInitialized() == 0) return;
          const py::gil_scoped_acquire gil;
          (*call)(static_cast<int>(level), line);
        });
      },
      "write"_a);
  module.def("clear_log_sink", [] { log::set_sink({}); });
  module.def(
      "set_log_level", [](const std::string& name) { log::set_level(log::level_from_name(name)); }, "name"_a);
}

}  // namespace deepspeed::python
