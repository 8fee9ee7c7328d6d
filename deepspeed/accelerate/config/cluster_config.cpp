// Reads the YAML file as Accelerate does: the given keys, older shapes converted, defaults for the rest, and
// only then the checks, so that a fault names the file's own line.
#include "deepspeed/accelerate/config/cluster_config.h"

#include <algorithm>
#include <fstream>
#include <utility>
#include <vector>

#include "deepspeed/accelerate/config/deepspeed_fields.h"
#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/text.h"
#include "deepspeed/config/table/coerce.h"
#include "deepspeed/config/table/nearest_key.h"

namespace deepspeed::accelerate {
namespace {

/// Describes a key of the file.
struct ConfigKey {
  const char* key;
  ValueKind kind;
  Json otherwise;  ///< the value if the file does not have the key
};

/// Lists the keys that Accelerate's ClusterConfig has, with its defaults.
const std::vector<ConfigKey>& config_keys() {
  using enum ValueKind;
  static const Json none = Json::object();
  static const std::vector<ConfigKey> keys = {
      {"compute_environment", kText, "LOCAL_MACHINE"},
      {"distributed_type", kText, nullptr},
      {"mixed_precision", kText, nullptr},
      {"use_cpu", kBool, false},
      {"debug", kBool, false},
      {"num_processes", kInt, -1},
      {"machine_rank", kInt, 0},
      {"num_machines", kInt, 1},
      {"gpu_ids", kAny, nullptr},
      {"main_process_ip", kText, nullptr},
      {"main_process_port", kInt, nullptr},
      {"rdzv_backend", kText, "static"},
      {"same_network", kBool, false},
      {"main_training_function", kText, "main"},
      {"enable_cpu_affinity", kBool, false},
      {"fp8_config", kMap, none},
      {"deepspeed_config", kMap, none},
      {"fsdp_config", kMap, none},
      {"parallelism_config", kMap, none},
      {"megatron_lm_config", kMap, none},
      {"mpirun_config", kMap, none},
      {"ipex_config", kMap, none},  // of older versions
      {"downcast_bf16", kAny, false},
      {"tpu_name", kText, nullptr},
      {"tpu_zone", kText, nullptr},
      {"tpu_use_cluster", kBool, false},
      {"tpu_use_sudo", kBool, false},
      {"command_file", kText, nullptr},
      {"commands", kAny, nullptr},
      {"tpu_vm", kAny, nullptr},
      {"tpu_env", kAny, nullptr},
      {"dynamo_config", kMap, none},
  };
  return keys;
}

/// Checks one value. `path` names it in the file.
void require(const YamlDocument& document, const std::string& path, const Json& value, ValueKind kind,
             const std::vector<std::string>& choices = {}) {
  if (value.is_null()) return;
  if (const auto fault = fault_of(value, kind, choices))
    raise<ConfigError>(document.place_of(path), ": ", path, ": got ", json_excerpt(value), ", ", *fault);
}

/// Says which keys have no meaning here. They are kept, since a later Accelerate may know them.
void warn_of_unknown(const YamlDocument& document, const Json& section, const std::string& prefix,
                     const std::vector<std::string>& known) {
  for (const auto& [key, value] : section.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    log::warning("[config] ", document.place_of(prefix + path_part(key)), ": ", prefix, path_part(key),
                 " is not known, and has no effect",
                 config::did_you_mean(config::nearest_keys(key, known, 1)));
  }
}

void require_known_type(const YamlDocument& document, Json& values) {
  const Json& environment = values["compute_environment"];
  if (environment != "LOCAL_MACHINE") {
    raise<ConfigError>(document.place_of("compute_environment"), ": compute_environment: got ",
                       json_excerpt(environment),
                       ", expected LOCAL_MACHINE: this library starts programs on machines of your own");
  }
  const Json& type = values["distributed_type"];
  if (type.is_null())
    raise<ConfigError>(document.source,
                       ": distributed_type: A `distributed_type` must be specified in the config file.");
  for (const char* known : {"DEEPSPEED", "MULTI_GPU", "MULTI_CPU", "NO"}) {
    if (type == known) return;
  }
  raise<ConfigError>(
      document.place_of("distributed_type"), ": distributed_type: got ", json_excerpt(type),
      ", which this library does not run: use DEEPSPEED for ZeRO, or MULTI_GPU for plain data parallelism");
}

}  // namespace

ClusterConfig::ClusterConfig(const YamlDocument& document) : values(Json::object()) {
  const Json& given = document.value;
  if (!given.is_object())
    raise<ConfigError>(document.source, ": got ", json_excerpt(given),
                       ", expected the keys of a config for Accelerate");
  for (const auto& [key, value] : given.items()) values[key] = value;

  const bool half = config::as_bool(values.value("fp16", Json(false))).value_or(false);
  values.erase("fp16");
  // `no` without quotes is false in YAML 1.1.
  if (values.contains("mixed_precision") && values["mixed_precision"] == false)
    values["mixed_precision"] = "no";
  if (!values.contains("mixed_precision")) values["mixed_precision"] = half ? Json("fp16") : Json();
  if (values.contains("dynamo_backend")) {
    const Json backend = values["dynamo_backend"];
    values.erase("dynamo_backend");
    const bool off = backend == "NO" || backend == false;
    values["dynamo_config"] = off ? Json::object() : Json{{"dynamo_backend", backend}};
  }
  if (!values.contains("num_processes") && values.value("distributed_type", Json()) == "NO")
    values["num_processes"] = 1;
  for (const ConfigKey& key : config_keys()) {
    const bool absent =
        !values.contains(key.key) || (key.kind == ValueKind::kMap && values[key.key].is_null());
    if (absent) values[key.key] = key.otherwise;
    require(document, key.key, values[key.key], key.kind);
  }
  require(document, "mixed_precision", values["mixed_precision"], ValueKind::kText,
          {"no", "fp16", "bf16", "fp8"});
  for (const DeepSpeedField& field : deepspeed_fields()) {
    const Json& section = values["deepspeed_config"];
    if (!section.contains(field.key)) continue;
    require(document, std::string("deepspeed_config.") + field.key, section[field.key], field.kind,
            field.choices);
  }
  require_known_type(document, values);
  std::vector<std::string> names, fields;
  for (const ConfigKey& key : config_keys()) names.emplace_back(key.key);
  for (const DeepSpeedField& field : deepspeed_fields()) fields.emplace_back(field.key);
  warn_of_unknown(document, values, "", names);
  warn_of_unknown(document, values["deepspeed_config"], "deepspeed_config.", fields);
}

ClusterConfig ClusterConfig::from_file(const std::filesystem::path& path) {
  if (path.extension() != ".json") return ClusterConfig(read_yaml_file(path));
  return ClusterConfig(YamlDocument{read_json_file(path), path.string(), {}});
}

std::string ClusterConfig::to_yaml() const {
  std::vector<std::pair<std::string, Json>> kept;
  for (const auto& [key, value] : values.items()) {
    const bool empty = value.is_null() || (value.is_object() && value.empty());
    if (!empty) kept.emplace_back(key, value);
  }
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Json sorted = Json::object();
  for (auto& [key, value] : kept) {
    if (value.is_object()) value = Json(nlohmann::json(value));  // sorts its keys
    sorted[key] = std::move(value);
  }
  return deepspeed::to_yaml(sorted);
}

void ClusterConfig::to_file(const std::filesystem::path& path) const {
  std::error_code ignored;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  std::ofstream out(path);
  out << (path.extension() == ".json"
              ? nlohmann::json(parse_yaml(to_yaml(), path.string()).value).dump(2) + "\n"
              : to_yaml());
  out.close();
  if (!out) raise<IoError>("cannot write ", path.string());
}

const Json& ClusterConfig::at(const std::string& key) const {
  static const Json null;
  const auto found = values.find(key);
  return found == values.end() ? null : *found;
}

std::string ClusterConfig::text_of(const std::string& key) const {
  const Json& value = at(key);
  return value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
}

std::optional<int> ClusterConfig::int_of(const std::string& key) const {
  const auto number = config::as_int(at(key));
  return number ? std::optional<int>(static_cast<int>(*number)) : std::nullopt;
}

bool ClusterConfig::flag_of(const std::string& key) const { return config::as_bool(at(key)).value_or(false); }

std::filesystem::path default_config_file() {
  const std::filesystem::path home = env::get("HOME").value_or(".");
  const std::filesystem::path cache = env::get("XDG_CACHE_HOME").value_or((home / ".cache").string());
  const std::filesystem::path hub = env::get("HF_HOME").value_or((cache / "huggingface").string());
  return hub / "accelerate" / "default_config.yaml";
}

}  // namespace deepspeed::accelerate
