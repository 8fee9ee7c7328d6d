// GPT-2 in the form of Hugging Face: the keys of its config.json, and its names and shapes of weights.
#pragma once

#include <filesystem>
#include <memory>

#include "deepspeed/base/json.h"

#include "gpt_config.h"
#include "run_options.h"

namespace deepspeed {
class TrainingEngine;
}

namespace gpt2 {

class GPT;

struct HuggingFaceGpt {
  GptConfig config;
  deepspeed::Json other_keys;  // of config.json, which say nothing of what the model computes
};

/// Reads a config.json, or the one in a folder. Throws as ConfigKeys, and NotSupportedError, naming the key,
/// for an option that GPT does not have.
HuggingFaceGpt read_hugging_face(const std::filesystem::path& path);

/// Copies the weights of a folder, in one file or in shards, into a model, or into that of an engine, whose
/// ranks all call it. Throws as deepspeed::load_weights().
void load_hugging_face(const std::shared_ptr<GPT>& model, const std::filesystem::path& folder);
void load_hugging_face(deepspeed::TrainingEngine& engine, const std::filesystem::path& folder);

/// Writes the model of an engine, whose ranks all call it, for AutoModelForCausalLM.from_pretrained(). Throws
/// IoError.
void save_hugging_face(deepspeed::TrainingEngine& engine, const std::filesystem::path& folder,
                       const GptConfig& config, const deepspeed::Json& other_keys);

/// Scores the inputs that the options name, and writes the scores (batch, tokens, vocabulary).
void write_logits(const examples::ModelFolders& folders);

}  // namespace gpt2
