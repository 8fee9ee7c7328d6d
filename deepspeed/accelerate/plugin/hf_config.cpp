#include "deepspeed/accelerate/plugin/hf_config.h"

#include <filesystem>
#include <utility>

#include "deepspeed/accelerate/plugin/python_text.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"

namespace deepspeed::accelerate {
namespace {

Json read_config(const std::string& path_or_text) {
  std::error_code status;
  const bool is_file = std::filesystem::exists(path_or_text, status);
  const bool is_text = path_or_text.find('{') != std::string::npos;
  if (!is_file && !is_text && !decode_base64(path_or_text).value_or("").starts_with('{')) {
    raise<ConfigError>(
        "Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded "
        "string. "
        "Received: ",
        path_or_text);
  }
  return config::ConfigSource(path_or_text).read();
}

/// Returns whether the value counts as true in Python.
bool is_truthy(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

}  // namespace

HfDeepSpeedConfig::HfDeepSpeedConfig(const std::string& path_or_text) : config(read_config(path_or_text)) {}

HfDeepSpeedConfig::HfDeepSpeedConfig(Json object) : config(config::ConfigSource(std::move(object)).read()) {}

Json* HfDeepSpeedConfig::find(const std::string& path) {
  return const_cast<Json*>(std::as_const(*this).find(path));
}

const Json* HfDeepSpeedConfig::find(const std::string& path) const {
  const Json* node = &config;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    if (!node->is_object()) return nullptr;
    const auto found = node->find(path.substr(begin, end - begin));
    if (found == node->end()) return nullptr;
    node = &*found;
    begin = end + 1;
  }
  return node;
}

Json HfDeepSpeedConfig::get_value(const std::string& path, const Json& otherwise) const {
  const Json* found = find(path);
  return found ? *found : otherwise;
}

void HfDeepSpeedConfig::del_config_sub_tree(const std::string& path, bool must_exist) {
  if (!find(path)) {
    if (must_exist) raise<ConfigError>("Can't find ", path, " entry in the config: ", python_repr(config));
    return;
  }
  const size_t dot = path.rfind('.');
  Json* parent = dot == std::string::npos ? &config : find(path.substr(0, dot));
  parent->erase(dot == std::string::npos ? path : path.substr(dot + 1));
}

bool HfDeepSpeedConfig::is_auto(const std::string& path) const { return get_value(path) == "auto"; }

bool HfDeepSpeedConfig::is_true(const std::string& path) const { return is_truthy(get_value(path)); }

bool HfDeepSpeedConfig::is_false(const std::string& path) const {
  const Json value = get_value(path);
  return !value.is_null() && !is_truthy(value);
}

bool HfDeepSpeedConfig::is_offload() const {
  if (!is_zero2() && !is_zero3()) return false;
  for (const char* path :
       {"zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device"}) {
    const Json device = get_value(path);
    if (device == "cpu" || device == "nvme") return true;
  }
  return false;
}

}  // namespace deepspeed::accelerate
