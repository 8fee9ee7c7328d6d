// Trains a BERT on the masked language task, and takes it from and to folders of Hugging Face.
#pragma once

#include <filesystem>

#include "bert_config.h"
#include "run_options.h"

namespace CLI {
class App;
}
namespace deepspeed {
class TrainingEngine;
}

namespace bert {

struct Options : examples::RunOptions {
  examples::ModelFolders folders;
  int64_t context = 64;  // tokens of a window
};

/// Adds the options with their defaults and help; parsing `app` fills `options`.
void add_options(CLI::App& app, Options& options);

/// Writes the model of an engine, whose ranks all call it, for AutoModelForMaskedLM.from_pretrained(). Throws
/// IoError.
void save_bert(deepspeed::TrainingEngine& engine, const BertConfig& config,
               const std::filesystem::path& folder);

/// Trains as the options say, or scores their inputs. Throws deepspeed::UsageError for options that miss each
/// other, and for a model whose vocabulary has no mask behind the bytes.
void run(const Options& options);

}  // namespace bert
