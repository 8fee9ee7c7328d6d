// Text from a trained model, one token at a time.
#pragma once

#include <cstdint>
#include <string>

#include "gpt.h"
#include "text_data.h"

namespace gpt2 {

struct SampleOptions {
  std::string prompt = {};   // "": a line end where the vocabulary has one, else its first byte
  int64_t num_tokens = 300;  // to add to the prompt
  double temperature = 0.8;  // 0: always the likeliest token
  uint64_t seed = 0;         // of a generator of its own: the other random streams stay where they are
};

/// The prompt and what the model adds to it. Throws deepspeed::UsageError for a prompt with unknown bytes, a
/// negative number of tokens or a negative temperature.
std::string sample(GPT& model, const Vocabulary& vocabulary, const SampleOptions& options);

}  // namespace gpt2
