// What a DeepSpeedTransformerLayer is, in DeepSpeed's keys.
#pragma once

#include <cstdint>
#include <filesystem>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::ops {

/// The keys and defaults are DeepSpeed's; -1 stands for "not given".
struct DEEPSPEED_API DeepSpeedTransformerConfig {
  int64_t batch_size = -1;         // the most sequences of a forward; -1: any number
  int64_t hidden_size = -1;        // H, a multiple of `heads`
  int64_t intermediate_size = -1;  // I; -1: 4 H
  int64_t heads = -1;
  double attn_dropout_ratio = -1;    // of the attention's probabilities, in [0, 1]; -1: none
  double hidden_dropout_ratio = -1;  // of both outputs that are added to a residual; -1: none
  int64_t num_hidden_layers = -1;    // of the model: its initialisation depends on it (adjust_init_range)
  double initializer_range = -1;     // standard deviation of the new matrices
  double layer_norm_eps = 1e-12;
  int64_t local_rank = -1;  // the CUDA device that becomes the current one; -1: leaves it
  int64_t seed = -1;  // of the masks of dropout, whose offsets torch's generator gives; -1: it gives both
  bool fp16 = false;  // forward refuses hidden states of another dtype than float16
  bool pre_layer_norm = true;         // normalizes the inputs of the two blocks; else their sums
  bool normalize_invertible = false;  // keeps the layer norms' outputs alone: no norm weight may be 0
  bool gelu_checkpoint = false;       // backward computes the GELU again
  bool adjust_init_range = true;      // attn_ow, output_w get initializer_range / sqrt(2 num_hidden_layers)
  bool attn_dropout_checkpoint = false;  // backward drops the probabilities again
  bool stochastic_mode = false;          // permits results that differ by run; they are equal all the same
  bool return_tuple = false;             // Python alone: forward returns a tuple of one
  bool training = true;                  // false: no dropout, as after eval()
  bool huggingface = false;              // the older name of return_tuple
  int64_t layer_id = -1;                 // errors name the layer by it; -1: layers count themselves
  bool test_gemm = false;                // must be false: libraries choose how they multiply matrices
  bool is_grad_enabled = true;           // false: forward keeps nothing for a backward

  /// Reads an object of these keys. Throws ConfigError for an unknown key and for a value of a wrong type.
  static DeepSpeedTransformerConfig from_dict(const Json& keys);
  /// Reads a file in UTF-8, or in UTF-16 as DeepSpeed expects it. Throws IoError too.
  static DeepSpeedTransformerConfig from_json_file(const std::filesystem::path& path);
  /// Returns all keys with their values.
  Json to_dict() const;

  /// Returns the config with what -1 stands for in intermediate_size and the ratios. Throws ConfigError for a
  /// value out of range, NotSupportedError for test_gemm.
  DeepSpeedTransformerConfig checked() const;
};

}  // namespace deepspeed::ops
