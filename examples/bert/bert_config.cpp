#include "bert_config.h"

#include "config_keys.h"

namespace bert {
using deepspeed::ConfigError;
using deepspeed::Json;
using deepspeed::raise;
using examples::ConfigKeys;

namespace {

double read_dropout(ConfigKeys& keys, const char* key) {
  const double dropout = keys.get<double>(key, 0.1);
  if (!(dropout >= 0 && dropout < 1)) {
    raise<ConfigError>(keys.source(), ": ", key, " is ", dropout, ", expected at least 0 and less than 1");
  }
  return dropout;
}

}  // namespace

BertConfig read_bert_config(const std::filesystem::path& path) {
  ConfigKeys keys(path, "bert");
  const auto positive = [&](const char* key) {
    const auto value = keys.get<int64_t>(key);
    examples::require_positive(keys, key, value);
    return value;
  };
  BertConfig config;
  config.vocab_size = positive("vocab_size");
  config.max_position_embeddings = positive("max_position_embeddings");
  config.type_vocab_size = keys.get<int64_t>("type_vocab_size", 2);
  examples::require_positive(keys, "type_vocab_size", config.type_vocab_size);
  config.tie_word_embeddings = keys.get<bool>("tie_word_embeddings", true);
  config.pad_token_id = 0;
  if (keys.has("pad_token_id")) config.pad_token_id = keys.find<int64_t>("pad_token_id");
  if (config.pad_token_id && (*config.pad_token_id < 0 || *config.pad_token_id >= config.vocab_size))
    config.pad_token_id.reset();  // there is no such row

  auto& layer = config.layer;
  layer.hidden_size = positive("hidden_size");
  layer.intermediate_size = positive("intermediate_size");
  layer.heads = positive("num_attention_heads");
  layer.num_hidden_layers = positive("num_hidden_layers");
  if (layer.hidden_size % layer.heads != 0) {
    raise<ConfigError>(keys.source(), ": hidden_size is ", layer.hidden_size,
                       ", expected a multiple of num_attention_heads, ", layer.heads);
  }
  layer.hidden_dropout_ratio = read_dropout(keys, "hidden_dropout_prob");
  layer.attn_dropout_ratio = read_dropout(keys, "attention_probs_dropout_prob");
  layer.initializer_range = keys.get<double>("initializer_range", 0.02);
  layer.layer_norm_eps = keys.get<double>("layer_norm_eps", 1e-12);
  layer.pre_layer_norm = false;
  layer.adjust_init_range = false;

  if (keys.get<std::string>("hidden_act", "gelu") != "gelu_pytorch_tanh") {  // another name of the function
    keys.only("hidden_act", "gelu_new",
              ", the tanh form; a model of gelu becomes one of gelu_new, whose scores differ by about 5e-4, "
              "where its config.json says so");
    if (keys.get<std::string>("hidden_act", "gelu") == "gelu")  // what an absent key stands for
      raise<ConfigError>(keys.source(), ": hidden_act is missing, expected gelu_new");
  }
  keys.only("position_embedding_type", "absolute");
  keys.only("is_decoder", false);
  keys.only("add_cross_attention", false);
  keys.only("pruned_heads", Json::object());
  config.other_keys = keys.others();
  return config;
}

Json to_json(const BertConfig& config) {
  Json json = config.other_keys;
  json["architectures"] = Json::array({"BertForMaskedLM"});
  json["model_type"] = "bert";
  json["vocab_size"] = config.vocab_size;
  json["hidden_size"] = config.layer.hidden_size;
  json["intermediate_size"] = config.layer.intermediate_size;
  json["num_hidden_layers"] = config.layer.num_hidden_layers;
  json["num_attention_heads"] = config.layer.heads;
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["type_vocab_size"] = config.type_vocab_size;
  json["hidden_act"] = "gelu_new";
  json["hidden_dropout_prob"] = config.layer.hidden_dropout_ratio;
  json["attention_probs_dropout_prob"] = config.layer.attn_dropout_ratio;
  json["initializer_range"] = config.layer.initializer_range;
  json["layer_norm_eps"] = config.layer.layer_norm_eps;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["pad_token_id"] = config.pad_token_id ? Json(*config.pad_token_id) : Json();
  return json;
}

}  // namespace bert
