// Trains a Llama, and takes it from and to folders of Hugging Face.
#pragma once

#include <filesystem>
#include <memory>

#include "llama_config.h"
#include "run_options.h"

namespace CLI {
class App;
}
namespace deepspeed {
class TrainingEngine;
}

namespace llama {

class Llama;

struct Options : examples::RunOptions {
  examples::ModelFolders folders;
  int64_t context = 64;  // tokens of a window
};

/// Adds the options with their defaults and help; parsing `app` fills `options`.
void add_options(CLI::App& app, Options& options);

/// Copies the weights of a folder, in one file or in shards, into a model, or into that of an engine, whose
/// ranks all call it. Throws as deepspeed::load_weights().
void load_llama(const std::shared_ptr<Llama>& model, const std::filesystem::path& folder);
void load_llama(deepspeed::TrainingEngine& engine, const LlamaConfig& config,
                const std::filesystem::path& folder);

/// Writes the model of an engine, whose ranks all call it, for AutoModelForCausalLM.from_pretrained(). Throws
/// IoError.
void save_llama(deepspeed::TrainingEngine& engine, const LlamaConfig& config,
                const std::filesystem::path& folder);

/// Trains as the options say, or scores their inputs. Throws deepspeed::UsageError for options that miss each
/// other.
void run(const Options& options);

}  // namespace llama
