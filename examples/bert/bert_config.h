// What a BERT is, in the keys of Hugging Face's config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include <deepspeed/ops.h>

#include "deepspeed/base/json.h"

namespace bert {

struct BertConfig {
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 512;
  int64_t type_vocab_size = 2;
  bool tie_word_embeddings = true;
  std::optional<int64_t> pad_token_id;                     // its embedding takes no gradient from the lookup
  deepspeed::DeepSpeedTransformerConfig layer;             // of each of layer.num_hidden_layers layers
  deepspeed::Json other_keys = deepspeed::Json::object();  // which say nothing of what the model computes
};

/// Reads a config.json, or the one in a folder. Throws ConfigError, naming the key, for one that is missing,
/// of another type or out of range, and NotSupportedError for an option that the model does not have:
/// hidden_act has to be a GELU in its tanh form.
BertConfig read_bert_config(const std::filesystem::path& path);

/// Returns the keys as Transformers reads them.
deepspeed::Json to_json(const BertConfig& config);

}  // namespace bert
