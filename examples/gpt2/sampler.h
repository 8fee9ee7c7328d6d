// Text from a trained model, one token at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "text_data.h"

namespace gpt2 {

using examples::Vocabulary;
class GPT;

struct SampleOptions {
  std::string prompt = {};   // "": a line end where the vocabulary has one, else its first byte
  int64_t num_tokens = 300;  // to add to the prompt
  double temperature = 0.8;  // 0: always the likeliest token
  uint64_t seed = 0;         // for a generator of its own: the other random streams stay where they are
};

/// Returns the prompt and what the model adds to it. Throws deepspeed::UsageError for a prompt with unknown
/// bytes, a negative number of tokens or a negative temperature.
std::string sample(GPT& model, const Vocabulary& vocabulary, const SampleOptions& options);

/// Samples from a file of zero_to_fp32 and the folder of the run that it comes from (model_file.h). With a
/// `ds_config` the model runs in an engine of that config, whose ranks all call it: at stage 3 its parameters
/// may be larger than the memory of one of them (ZeRO-Inference). Throws as read_model_file() and
/// load_weights() do.
std::string sample_from_file(const std::filesystem::path& weights, const std::filesystem::path& run_folder,
                             const SampleOptions& options, const std::string& ds_config = "");

}  // namespace gpt2
