// What the command lines of the examples that train on text have in common.
#pragma once

#include <cstdint>
#include <string>

#include "deepspeed/engine/assembly/initialize_options.h"

namespace CLI {
class App;
}

namespace examples {

struct RunOptions {
  deepspeed::ConfigArguments config;  // --deepspeed_config: training needs it
  std::string data;                   // "": the texts that lie on every Debian machine
  int64_t steps = 1200;               // optimizer steps in all, those before a resume included
  int64_t eval_every = 0;             // 0: at the end alone
  std::string loss_log;
  int64_t log_every = 50;  // steps between two lines where the output is not a terminal
  uint64_t seed = 1234;
};

/// Models in the form of Hugging Face: folders with a config.json and weights.
struct ModelFolders {
  std::string new_model;  // a config.json, of a model that is drawn anew
  std::string model;      // a folder to take the model from
  std::string output;     // a folder for the trained model
  std::string inputs;     // a safetensors file of what the model is to score
  std::string logits;     // the file for its scores
};

/// Add the options with their defaults and help; parsing `app` fills the structs.
void add_run_options(CLI::App& app, RunOptions& options);
void add_model_folders(CLI::App& app, ModelFolders& folders, bool has_new_model);

/// Throws deepspeed::UsageError for options that miss each other.
void validate(const ModelFolders& folders);

}  // namespace examples
