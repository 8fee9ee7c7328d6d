#include "deepspeed/ops/transformer/transformer_config.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/config/table/nearest_key.h"

namespace deepspeed::ops {
namespace {

using Config = DeepSpeedTransformerConfig;
using ConfigMember = std::variant<int64_t Config::*, double Config::*, bool Config::*>;

const std::vector<std::pair<std::string, ConfigMember>>& layer_keys() {
  static const std::vector<std::pair<std::string, ConfigMember>> keys = {
      {"batch_size", &Config::batch_size},
      {"hidden_size", &Config::hidden_size},
      {"intermediate_size", &Config::intermediate_size},
      {"heads", &Config::heads},
      {"attn_dropout_ratio", &Config::attn_dropout_ratio},
      {"hidden_dropout_ratio", &Config::hidden_dropout_ratio},
      {"num_hidden_layers", &Config::num_hidden_layers},
      {"initializer_range", &Config::initializer_range},
      {"layer_norm_eps", &Config::layer_norm_eps},
      {"local_rank", &Config::local_rank},
      {"seed", &Config::seed},
      {"fp16", &Config::fp16},
      {"pre_layer_norm", &Config::pre_layer_norm},
      {"normalize_invertible", &Config::normalize_invertible},
      {"gelu_checkpoint", &Config::gelu_checkpoint},
      {"adjust_init_range", &Config::adjust_init_range},
      {"attn_dropout_checkpoint", &Config::attn_dropout_checkpoint},
      {"stochastic_mode", &Config::stochastic_mode},
      {"return_tuple", &Config::return_tuple},
      {"training", &Config::training},
      {"huggingface", &Config::huggingface},
      {"layer_id", &Config::layer_id},
      {"test_gemm", &Config::test_gemm},
      {"is_grad_enabled", &Config::is_grad_enabled},
  };
  return keys;
}

void read_member(Config& config, int64_t Config::*member, const std::string& key, const Json& value) {
  if (!value.is_number_integer())
    raise<ConfigError>(key, ": got ", json_excerpt(value), ", expected an integer");
  config.*member = value.get<int64_t>();
}
void read_member(Config& config, double Config::*member, const std::string& key, const Json& value) {
  if (!value.is_number()) raise<ConfigError>(key, ": got ", json_excerpt(value), ", expected a number");
  config.*member = value.get<double>();
}
void read_member(Config& config, bool Config::*member, const std::string& key, const Json& value) {
  if (!value.is_boolean()) raise<ConfigError>(key, ": got ", json_excerpt(value), ", expected true or false");
  config.*member = value.get<bool>();
}

[[noreturn]] void raise_unknown(const std::string& key) {
  std::vector<std::string> known;
  for (const auto& [name, member] : layer_keys()) known.push_back(name);
  raise<ConfigError>(key, ": is no key of a transformer layer",
                     config::did_you_mean(config::nearest_keys(key, known, 1)));
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) raise<IoError>(path.string(), ": cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Decodes UTF-16: its byte order mark tells the order, the place of the first null byte where there is none.
Json parse_utf16(const std::string& bytes, const std::string& path) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const bool has_mark = (byte(0) == 0xff && byte(1) == 0xfe) || (byte(0) == 0xfe && byte(1) == 0xff);
  const bool big = has_mark ? byte(0) == 0xfe : byte(0) == 0;
  std::u16string text;
  for (size_t i = has_mark ? 2 : 0; i + 1 < bytes.size(); i += 2) {
    text.push_back(static_cast<char16_t>(big ? byte(i) << 8 | byte(i + 1) : byte(i + 1) << 8 | byte(i)));
  }
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    raise<ConfigError>(path, ": ", error.what());
  }
}

bool is_utf16(const std::string& bytes) {
  if (bytes.size() < 2) return false;
  const auto first = static_cast<unsigned char>(bytes[0]), second = static_cast<unsigned char>(bytes[1]);
  return (first == 0xff && second == 0xfe) || (first == 0xfe && second == 0xff) || first == 0 || second == 0;
}

template <class Number>
void check_range(const char* key, Number value, bool fits, const char* expected) {
  if (!fits) raise<ConfigError>(key, ": got ", value, ", expected ", expected);
}

bool is_ratio(double value) { return value == -1 || (value >= 0 && value <= 1); }

}  // namespace

Config Config::from_dict(const Json& keys) {
  if (!keys.is_object())
    raise<ConfigError>("a transformer layer: got ", json_excerpt(keys), ", expected a JSON object");
  Config config;
  for (const auto& [key, value] : keys.items()) {
    const auto found = std::find_if(layer_keys().begin(), layer_keys().end(),
                                    [&, &name = key](const auto& entry) { return entry.first == name; });
    if (found == layer_keys().end()) raise_unknown(key);
    if (key == "layer_id" && value.is_null()) continue;  // of scripts that number no layers
    std::visit([&, &name = key, &given = value](auto member) { read_member(config, member, name, given); },
               found->second);
  }
  return config;
}

Config Config::from_json_file(const std::filesystem::path& path) {
  const std::string bytes = bytes_of(path);
  return from_dict(is_utf16(bytes) ? parse_utf16(bytes, path.string()) : parse_json(bytes, path.string()));
}

Json Config::to_dict() const {
  Json keys = Json::object();
  for (const auto& [name, member] : layer_keys()) {
    std::visit([&, &key = name](auto place) { keys[key] = this->*place; }, member);
  }
  return keys;
}

Config Config::checked() const {
  check_range("hidden_size", hidden_size, hidden_size > 0, "a positive number");
  check_range("heads", heads, heads > 0, "a positive number");
  if (hidden_size % heads != 0)
    raise<ConfigError>("hidden_size: got ", hidden_size, ", expected a multiple of heads, ", heads);
  check_range("intermediate_size", intermediate_size, intermediate_size > 0 || intermediate_size == -1,
              "a positive number, or -1 for 4 hidden_size");
  check_range("batch_size", batch_size, batch_size > 0 || batch_size == -1,
              "a positive number, or -1 for any");
  check_range("attn_dropout_ratio", attn_dropout_ratio, is_ratio(attn_dropout_ratio), "0 to 1, or -1");
  check_range("hidden_dropout_ratio", hidden_dropout_ratio, is_ratio(hidden_dropout_ratio), "0 to 1, or -1");
  check_range("layer_norm_eps", layer_norm_eps, layer_norm_eps >= 0, "a number of at least 0");
  check_range("local_rank", local_rank, local_rank >= -1, "the number of a device, or -1");
  check_range("seed", seed, seed >= -1, "a number of at least 0, or -1");
  if (test_gemm) {
    raise<NotSupportedError>(
        "test_gemm is not supported: cuBLAS and oneDNN choose how they multiply matrices; leave it out");
  }
  Config config = *this;
  if (intermediate_size == -1) config.intermediate_size = 4 * hidden_size;
  config.attn_dropout_ratio = std::max(attn_dropout_ratio, 0.0);
  config.hidden_dropout_ratio = std::max(hidden_dropout_ratio, 0.0);
  config.return_tuple = return_tuple || huggingface;
  return config;
}

}  // namespace deepspeed::ops
