// What the examples read of a config.json, and how they refuse what they do not compute.
#include "config_keys.h"

#include <gtest/gtest.h>

#include "bert_config.h"
#include "hugging_face.h"
#include "llama_config.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace examples {
namespace {

using deepspeed::ConfigError;
using deepspeed::Json;
using deepspeed::NotSupportedError;
using deepspeed::testing::TemporaryFolder;

Json llama_keys() {
  return {{"model_type", "llama"},      {"vocab_size", 50},       {"hidden_size", 24},
          {"intermediate_size", 40},    {"num_hidden_layers", 2}, {"num_attention_heads", 6},
          {"num_key_value_heads", 2},   {"rope_theta", 500000.0}, {"bos_token_id", 1},
          {"transformers_version", "5"}};
}

/// A folder whose config.json has the keys, some of them changed.
struct ModelFolder : TemporaryFolder {
  explicit ModelFolder(Json keys, const Json& changes = Json::object()) {
    keys.update(changes);
    write("config.json", keys.dump());
  }
};

llama::LlamaConfig read_llama(const Json& changes) {
  return llama::read_llama_config(ModelFolder(llama_keys(), changes).path());
}

TEST(ConfigKeys, AreReadOnceAndTheOthersComeBack) {
  const auto config = read_llama(Json::object());
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.rope.theta, 500000.0);
  EXPECT_EQ(config.other_keys, Json({{"bos_token_id", 1}, {"transformers_version", "5"}}));
  EXPECT_EQ(read_llama({{"num_key_value_heads", nullptr}}).num_key_value_heads, 6);
  const Json written = llama::to_json(config);
  EXPECT_EQ(written["bos_token_id"], 1);
  EXPECT_EQ(llama::to_json(llama::read_llama_config(ModelFolder(written).path())), written);
}

TEST(ConfigKeys, ErrorsNameTheFileAndTheKey) {
  const TemporaryFolder empty;
  EXPECT_ERROR(deepspeed::IoError, llama::read_llama_config(empty.path()), "config.json");
  EXPECT_ERROR(ConfigError, llama::read_llama_config(ModelFolder(Json::object()).path()),
               "config.json: model_type is missing");
  EXPECT_ERROR(ConfigError, read_llama({{"model_type", "bert"}}), "model_type is bert, expected llama");
  EXPECT_ERROR(ConfigError, read_llama({{"vocab_size", "many"}}), "vocab_size is \"many\"", "an integer");
  EXPECT_ERROR(ConfigError, read_llama({{"rms_norm_eps", true}}), "rms_norm_eps is true", "a number");
  EXPECT_ERROR(ConfigError, read_llama({{"attention_bias", 1}}), "attention_bias is 1", "true or false");
  EXPECT_ERROR(ConfigError, read_llama({{"num_hidden_layers", 0}}), "num_hidden_layers is 0");
  EXPECT_ERROR(ConfigError, read_llama({{"num_key_value_heads", 4}}), "num_attention_heads is 6",
               "num_key_value_heads, 4");
  EXPECT_ERROR(ConfigError, read_llama({{"head_dim", 5}}), "head_dim is 5");
  EXPECT_ERROR(ConfigError, read_llama({{"attention_dropout", 1.0}}), "attention_dropout is 1");
  EXPECT_ERROR(ConfigError, read_llama({{"rope_theta", 0}}), "rope_theta is 0");
}

TEST(ConfigKeys, AreRefusedIfTheModelDoesNotComputeThem) {
  EXPECT_ERROR(NotSupportedError, read_llama({{"hidden_act", "gelu"}}), "hidden_act is \"gelu\"",
               "expected \"silu\"");
  EXPECT_ERROR(NotSupportedError, read_llama({{"pretraining_tp", 2}}), "pretraining_tp is 2");
  EXPECT_ERROR(NotSupportedError, read_llama({{"sliding_window", 128}}), "the key sliding_window");
  EXPECT_ERROR(NotSupportedError, read_llama({{"quantization_config", Json::object()}}),
               "quantization_config");
}

TEST(LlamaConfig, ReadsTheRopeOfBothVersionsOfTransformers) {
  const Json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  Json parameters = scaling;
  parameters["rope_theta"] = 500000.0;
  const auto of_4 = read_llama({{"rope_scaling", scaling}});
  const auto of_5 = read_llama({{"rope_theta", nullptr}, {"rope_parameters", parameters}});
  EXPECT_EQ(llama::to_json(of_4), llama::to_json(of_5));
  EXPECT_EQ(of_5.rope.theta, 500000.0);
  EXPECT_EQ(read_llama({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}).rope.type, "linear");
}

TEST(LlamaConfig, RefusesAnotherRope) {
  const auto read = [](const Json& scaling) { return read_llama({{"rope_scaling", scaling}}); };
  EXPECT_ERROR(NotSupportedError, read({{"rope_type", "yarn"}, {"factor", 2.0}}), "rope_scaling",
               "rope_type is yarn, expected default, linear or llama3");
  EXPECT_ERROR(NotSupportedError, read({{"rope_type", "linear"}, {"factor", 2.0}, {"beta_fast", 1}}),
               "beta_fast");
  EXPECT_ERROR(NotSupportedError, read({{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}),
               "partial_rotary_factor is 0.5");
  EXPECT_ERROR(ConfigError, read({{"rope_type", "linear"}}), "rope_scaling: factor is missing");
  EXPECT_ERROR(ConfigError, read({{"rope_type", "linear"}, {"factor", 0.5}}), "factor is 0.5");
  EXPECT_ERROR(
      ConfigError,
      read({{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 4.0}, {"high_freq_factor", 1.0}}),
      "high_freq_factor is 1");
}

TEST(LlamaConfig, SlowsOnlyLongWaves) {
  auto config = read_llama({{"head_dim", 8}});
  const auto plain = llama::inverse_frequencies(config);
  EXPECT_DOUBLE_EQ(plain[0], 1.0);
  EXPECT_NEAR(plain[1], std::pow(500000.0, -0.25), 1e-12);
  config.rope.type = "linear";
  config.rope.factor = 4.0;
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_DOUBLE_EQ(llama::inverse_frequencies(config)[i], plain[i] / 4);
  config.rope.type = "llama3";
  config.rope.original_max_position_embeddings = 64;
  const auto mixed = llama::inverse_frequencies(config);
  EXPECT_DOUBLE_EQ(mixed.front(), plain.front());
  EXPECT_DOUBLE_EQ(mixed.back(), plain.back() / 4);
}

TEST(BertConfig, RefusesTheOtherGeluAndDecoders) {
  const Json keys = {{"model_type", "bert"},          {"vocab_size", 50},        {"hidden_size", 24},
                     {"intermediate_size", 40},       {"num_hidden_layers", 2},  {"num_attention_heads", 3},
                     {"max_position_embeddings", 16}, {"hidden_act", "gelu_new"}};
  const auto read = [&](const Json& changes) {
    return bert::read_bert_config(ModelFolder(keys, changes).path());
  };
  EXPECT_EQ(read(Json::object()).layer.heads, 3);
  EXPECT_EQ(read({{"hidden_act", "gelu_pytorch_tanh"}}).layer.heads, 3);
  EXPECT_ERROR(NotSupportedError, read({{"hidden_act", "gelu"}}), "hidden_act is \"gelu\"", "gelu_new");
  EXPECT_ERROR(ConfigError, read({{"hidden_act", nullptr}}), "hidden_act is missing, expected gelu_new");
  EXPECT_ERROR(NotSupportedError, read({{"is_decoder", true}}), "is_decoder is true");
  EXPECT_ERROR(NotSupportedError, read({{"position_embedding_type", "relative_key"}}),
               "position_embedding_type");
  EXPECT_ERROR(ConfigError, read({{"num_attention_heads", 5}}), "hidden_size is 24",
               "num_attention_heads, 5");
  const Json written = bert::to_json(read(Json::object()));
  EXPECT_EQ(bert::to_json(bert::read_bert_config(ModelFolder(written).path())), written);
}

TEST(GptConfig, ReadsTheKeysOfHuggingFaceAndRefusesOthers) {
  const Json keys = {{"model_type", "gpt2"}, {"vocab_size", 50},      {"n_positions", 16},
                     {"n_layer", 2},         {"n_head", 3},           {"n_embd", 24},
                     {"n_inner", 40},        {"summary_type", "last"}};
  const auto read = [&](const Json& changes) {
    return gpt2::read_hugging_face(ModelFolder(keys, changes).path());
  };
  EXPECT_EQ(read(Json::object()).config.inner_width(), 40);
  EXPECT_EQ(read({{"n_inner", nullptr}}).config.inner_width(), 96);
  EXPECT_EQ(read(Json::object()).config.dropout, 0.1);
  EXPECT_ERROR(NotSupportedError, read({{"attn_pdrop", 0.2}}), "attn_pdrop is 0.2", "resid_pdrop, 0.1");
  EXPECT_ERROR(NotSupportedError, read({{"activation_function", "relu"}}), "activation_function");
  EXPECT_ERROR(NotSupportedError, read({{"scale_attn_by_inverse_layer_idx", true}}),
               "scale_attn_by_inverse_layer_idx is true");
  EXPECT_ERROR(NotSupportedError, read({{"tie_word_embeddings", false}}), "tie_word_embeddings is false");
}

}  // namespace
}  // namespace examples
