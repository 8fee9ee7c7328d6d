#include "llama_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "config_keys.h"

namespace llama {
using deepspeed::ConfigError;
using deepspeed::Json;
using deepspeed::NotSupportedError;
using deepspeed::raise;
using examples::ConfigKeys;
using examples::require_positive;

namespace {

/// Reads `rope_scaling` of Transformers 4, or `rope_parameters` of 5, which has the theta as well.
void read_scaling(ConfigKeys keys, int64_t max_position_embeddings, Rope& rope) {
  rope.theta = keys.get<double>("rope_theta", rope.theta);
  const auto older_name = keys.get<std::string>("type", "default");
  rope.type = keys.get<std::string>("rope_type", older_name);
  keys.only("partial_rotary_factor", 1.0);
  if (rope.type != "default") {
    if (rope.type != "linear" && rope.type != "llama3") {
      raise<NotSupportedError>(keys.source(), ": rope_type is ", rope.type,
                               ", expected default, linear or llama3");
    }
    rope.factor = keys.get<double>("factor");
    if (!(rope.factor >= 1))
      raise<ConfigError>(keys.source(), ": factor is ", rope.factor, ", expected at least 1");
  }
  if (rope.type == "llama3") {
    rope.low_freq_factor = keys.get<double>("low_freq_factor");
    rope.high_freq_factor = keys.get<double>("high_freq_factor");
    rope.original_max_position_embeddings =
        keys.get<int64_t>("original_max_position_embeddings", max_position_embeddings);
    if (!(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor)) {
      raise<ConfigError>(keys.source(), ": high_freq_factor is ", rope.high_freq_factor,
                         ", expected more than low_freq_factor, ", rope.low_freq_factor,
                         ", which is above 0");
    }
  }
  if (const Json others = keys.others(); !others.empty()) {
    raise<NotSupportedError>(keys.source(), ": the key ", others.items().begin().key(), " is unknown");
  }
}

Rope read_rope(ConfigKeys& keys, int64_t max_position_embeddings) {
  Rope rope;
  rope.theta = keys.get<double>("rope_theta", rope.theta);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (const auto scaling = keys.object(key)) read_scaling(*scaling, max_position_embeddings, rope);
  }
  if (!(rope.theta > 0))
    raise<ConfigError>(keys.source(), ": rope_theta is ", rope.theta, ", expected a number above 0");
  return rope;
}

void check_heads(const ConfigKeys& keys, const LlamaConfig& config) {
  const auto require_multiple = [&](const char* key, int64_t value, const char* of, int64_t factor) {
    if (value % factor != 0) {
      raise<ConfigError>(keys.source(), ": ", key, " is ", value, ", expected a multiple of ", of, ", ",
                         factor);
    }
  };
  require_multiple("hidden_size", config.hidden_size, "num_attention_heads", config.num_attention_heads);
  require_multiple("num_attention_heads", config.num_attention_heads, "num_key_value_heads",
                   config.num_key_value_heads);
  require_multiple("head_dim", config.head_dim, "the pairs that a position turns", 2);
}

}  // namespace

LlamaConfig read_llama_config(const std::filesystem::path& path) {
  ConfigKeys keys(path, "llama");
  LlamaConfig config;
  const auto positive = [&](const char* key, std::optional<int64_t> otherwise = {}) {
    const auto value = otherwise ? keys.get<int64_t>(key, *otherwise) : keys.get<int64_t>(key);
    require_positive(keys, key, value);
    return value;
  };
  config.vocab_size = positive("vocab_size");
  config.hidden_size = positive("hidden_size");
  config.intermediate_size = positive("intermediate_size");
  config.num_hidden_layers = positive("num_hidden_layers");
  config.num_attention_heads = positive("num_attention_heads");
  config.num_key_value_heads = positive("num_key_value_heads", config.num_attention_heads);
  config.head_dim = positive("head_dim", config.hidden_size / config.num_attention_heads);
  config.max_position_embeddings = positive("max_position_embeddings", config.max_position_embeddings);
  check_heads(keys, config);
  config.rms_norm_eps = keys.get<double>("rms_norm_eps", config.rms_norm_eps);
  config.rope = read_rope(keys, config.max_position_embeddings);
  config.attention_bias = keys.get<bool>("attention_bias", false);
  config.mlp_bias = keys.get<bool>("mlp_bias", false);
  config.attention_dropout = keys.get<double>("attention_dropout", 0.0);
  if (!(config.attention_dropout >= 0 && config.attention_dropout < 1)) {
    raise<ConfigError>(keys.source(), ": attention_dropout is ", config.attention_dropout,
                       ", expected at least 0 and less than 1");
  }
  config.tie_word_embeddings = keys.get<bool>("tie_word_embeddings", false);
  config.initializer_range = keys.get<double>("initializer_range", config.initializer_range);
  config.pad_token_id = keys.find<int64_t>("pad_token_id");
  if (config.pad_token_id && (*config.pad_token_id < 0 || *config.pad_token_id >= config.vocab_size))
    config.pad_token_id.reset();  // as -1 in older files: there is no such row
  keys.only("hidden_act", "silu");
  keys.only("pretraining_tp", 1, "; the weights are those of 1");
  keys.only("pruned_heads", Json::object());
  config.other_keys = keys.others();
  return config;
}

Json to_json(const LlamaConfig& config) {
  Json json = config.other_keys;
  json["architectures"] = Json::array({"LlamaForCausalLM"});
  json["model_type"] = "llama";
  json["vocab_size"] = config.vocab_size;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["num_hidden_layers"] = config.num_hidden_layers;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_key_value_heads"] = config.num_key_value_heads;
  json["head_dim"] = config.head_dim;
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["rms_norm_eps"] = config.rms_norm_eps;
  json["rope_theta"] = config.rope.theta;
  json["rope_scaling"] = nullptr;
  if (config.rope.type != "default") {
    Json scaling = {{"rope_type", config.rope.type}, {"factor", config.rope.factor}};
    if (config.rope.type == "llama3") {
      scaling["low_freq_factor"] = config.rope.low_freq_factor;
      scaling["high_freq_factor"] = config.rope.high_freq_factor;
      scaling["original_max_position_embeddings"] = config.rope.original_max_position_embeddings;
    }
    json["rope_scaling"] = scaling;
  }
  json["attention_bias"] = config.attention_bias;
  json["mlp_bias"] = config.mlp_bias;
  json["attention_dropout"] = config.attention_dropout;
  json["hidden_act"] = "silu";
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["initializer_range"] = config.initializer_range;
  json["pad_token_id"] = config.pad_token_id ? Json(*config.pad_token_id) : Json();
  return json;
}

std::vector<double> inverse_frequencies(const LlamaConfig& config) {
  const Rope& rope = config.rope;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < config.head_dim; i += 2) {
    const double plain = std::pow(rope.theta, -static_cast<double>(i) / static_cast<double>(config.head_dim));
    double slow = 1.0;  // the share that is divided by the factor
    if (rope.type == "default") slow = 0.0;
    if (rope.type == "llama3") {
      const double waves =
          static_cast<double>(rope.original_max_position_embeddings) * plain / (2 * std::numbers::pi);
      const double smooth = (waves - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      slow = 1 - std::clamp(smooth, 0.0, 1.0);
    }
    frequencies.push_back(slow * plain / rope.factor + (1 - slow) * plain);
  }
  return frequencies;
}

}  // namespace llama
