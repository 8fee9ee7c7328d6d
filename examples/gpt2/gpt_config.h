// The sizes of the model.
#pragma once

#include <cstdint>

namespace gpt2 {

struct GptConfig {
  int64_t vocabulary = 0;  // number of different tokens
  int64_t context = 64;    // the longest sequence, in tokens
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;   // a multiple of heads
  double dropout = 0.0;  // of the embeddings, the attention weights and both residual branches
  int64_t inner = 0;     // numbers a token within the MLP; 0: 4 width
  double norm_eps = 1e-5;

  int64_t inner_width() const { return inner > 0 ? inner : 4 * width; }
};

/// Throws deepspeed::UsageError, naming the field, for sizes below 1, a width that the heads do not divide, a
/// dropout outside [0, 1), or a negative inner.
void validate(const GptConfig& config);

}  // namespace gpt2
