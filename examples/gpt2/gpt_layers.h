// The GPT as a list of layers, which a pipeline cuts into stages.
#pragma once

#include <vector>

#include <deepspeed/pipe.h>

#include "gpt_config.h"

namespace gpt2 {

/// Embeddings, blocks, the last norm, and the head, which shares the tokens' embedding with the first layer.
/// Each layer draws its weights as GPT does, under a seed of its own that follows from `seed`: they do not
/// depend on the number of stages. Tokens (B, T) become logits (B, T, vocabulary).
std::vector<deepspeed::LayerSpec> gpt_layers(const GptConfig& config, uint64_t seed);

}  // namespace gpt2
