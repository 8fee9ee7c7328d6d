#include "run_options.h"

#include <CLI/CLI.hpp>

#include "deepspeed/base/error.h"

namespace examples {

void add_run_options(CLI::App& app, RunOptions& options) {
  deepspeed::add_config_arguments(app, options.config);
  const std::string group = "Training";
  app.add_option("--data", options.data, "text file (default: the texts in /usr/share/common-licenses)")
      ->group(group);
  app.add_option("--steps", options.steps, "optimizer steps in all, those before a resume included")
      ->group(group)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--eval_every", options.eval_every, "steps between two evaluations (0: at the end alone)")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", options.seed, "of initialisation, dropout, data order and sampling")
      ->group(group)
      ->capture_default_str();
  app.add_option("--log_every", options.log_every, "steps between two lines when not on a terminal")
      ->group(group)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--loss_log", options.loss_log, "file for `step loss` of every step, at full precision")
      ->group(group);
}

void add_model_folders(CLI::App& app, ModelFolders& folders, bool has_new_model) {
  const std::string group = "Models in the form of Hugging Face";
  auto* model = app.add_option("--model", folders.model, "folder with config.json and weights to begin with")
                    ->group(group);
  if (has_new_model) {
    app.add_option("--new_model", folders.new_model, "config.json of a model that is drawn anew")
        ->group(group)
        ->excludes(model);
  }
  app.add_option("--output", folders.output, "folder for config.json and model.safetensors after training")
      ->group(group);
  app.add_option("--inputs", folders.inputs,
                 "safetensors file with input_ids (batch, tokens): score them and do not train")
      ->group(group);
  app.add_option("--logits", folders.logits, "safetensors file for the scores of --inputs")->group(group);
}

void validate(const ModelFolders& folders) {
  const auto reject = [](const char* text) { deepspeed::raise<deepspeed::UsageError>(text); };
  if (folders.inputs.empty() != folders.logits.empty())
    reject("--inputs and --logits need each other: what to score, and the file for the scores");
  if (folders.inputs.empty()) return;
  if (folders.model.empty()) reject("--inputs needs --model FOLDER, whose model scores them");
  if (!folders.output.empty()) reject("--output is for training; leave it out, or leave out --inputs");
}

}  // namespace examples
