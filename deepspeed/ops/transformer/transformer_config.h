// What a DeepSpeedTransformerLayer is, in DeepSpeed's keys.
#pragma once

#include <cstdint>
#include <filesystem>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::ops {

/// Holds DeepSpeed's keys with their defaults; -1 stands for "not given". docs/transformer_layer.md says what
/// they mean.
struct DEEPSPEED_API DeepSpeedTransformerConfig {
  int64_t batch_size = -1;
  int64_t hidden_size = -1;
  int64_t intermediate_size = -1;
  int64_t heads = -1;
  double attn_dropout_ratio = -1;
  double hidden_dropout_ratio = -1;
  int64_t num_hidden_layers = -1;
  double initializer_range = -1;
  double layer_norm_eps = 1e-12;
  int64_t local_rank = -1;
  int64_t seed = -1;
  bool fp16 = false;
  bool pre_layer_norm = true;
  bool normalize_invertible = false;
  bool gelu_checkpoint = false;
  bool adjust_init_range = true;
  bool attn_dropout_checkpoint = false;
  bool stochastic_mode = false;
  bool return_tuple = false;
  bool training = true;
  bool huggingface = false;
  int64_t layer_id = -1;
  bool test_gemm = false;
  bool is_grad_enabled = true;

  /// Reads an object of these keys. Throws ConfigError for an unknown key, and a value of a wrong type or
  /// range.
  static DeepSpeedTransformerConfig from_dict(const Json& keys);
  /// Reads a file in UTF-8, or in UTF-16 as DeepSpeed expects it. Throws IoError too.
  static DeepSpeedTransformerConfig from_json_file(const std::filesystem::path& path);
  /// Returns all keys with their values.
  Json to_dict() const;

  /// Returns the config with what -1 stands for in intermediate_size and the ratios. Throws ConfigError for a
  /// value out of range or a size that is missing, NotSupportedError for test_gemm.
  DeepSpeedTransformerConfig checked() const;
};

}  // namespace deepspeed::ops
