// The config of a DeepSpeedTransformerLayer, with DeepSpeed's keys.
#pragma once

#include <cstdint>
#include <filesystem>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::ops {

/// Holds DeepSpeed's keys with their defaults. -1 means "not given". docs/transformer_layer.md explains the
/// keys.
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

  /// Reads an object with these keys. Throws ConfigError for an unknown key or a value of a wrong type or
  /// range.
  static DeepSpeedTransformerConfig from_dict(const Json& keys);
  /// Reads a file in UTF-8, or in UTF-16 as DeepSpeed does. Throws as from_dict() does, and IoError.
  static DeepSpeedTransformerConfig from_json_file(const std::filesystem::path& path);
  /// Returns all keys with their values.
  Json to_dict() const;

  /// Returns the config with values instead of -1 in intermediate_size and the ratios.
  ///
  /// Throws ConfigError for a value out of range or a missing size, and NotSupportedError for test_gemm.
  DeepSpeedTransformerConfig checked() const;
};

}  // namespace deepspeed::ops
