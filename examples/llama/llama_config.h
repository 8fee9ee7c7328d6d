// What a Llama is, in the keys of Hugging Face's config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"

namespace llama {

/// How positions turn the heads (Su et al. 2021), and how a longer context slows the turns.
struct Rope {
  double theta = 10000.0;
  std::string type = "default";  // or "linear", "llama3"
  double factor = 1.0;           // linear, llama3: frequencies are divided by it
  // llama3: waves of fewer than original / high_freq_factor positions stay, those of more than original /
  // low_freq_factor are divided, and those between are a mixture.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 0;
};

struct LlamaConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  // divides the other heads: so many of them share keys and values
  int64_t head_dim = 0;             // even
  int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  Rope rope;
  bool attention_bias = false;
  bool mlp_bias = false;
  double attention_dropout = 0.0;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  std::optional<int64_t> pad_token_id;                     // its embedding takes no gradient
  deepspeed::Json other_keys = deepspeed::Json::object();  // which say nothing of what the model computes
};

/// Reads a config.json, or the one in a folder, of Transformers 4 or 5. Throws ConfigError, naming the key,
/// for one that is missing, of another type or out of range, and NotSupportedError for an option that the
/// model does not have.
LlamaConfig read_llama_config(const std::filesystem::path& path);

/// Returns the keys as Transformers 4 and 5 read them.
deepspeed::Json to_json(const LlamaConfig& config);

/// Returns the angles that a position adds, head_dim / 2 of them, in radians.
std::vector<double> inverse_frequencies(const LlamaConfig& config);

}  // namespace llama
