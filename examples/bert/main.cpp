// Trains a BERT on the masked language task, or scores tokens with it:
//   deepspeed --num_procs 2 bert --deepspeed_config ds_config.json --new_model config.json --output FOLDER
//   bert --model FOLDER --inputs inputs.safetensors --logits logits.safetensors
#include <CLI/CLI.hpp>

#include "deepspeed/launcher/program_main.h"

#include "bert_run.h"

int main(int argc, char** argv) {
  CLI::App app("Trains a BERT on masked text with deepspeed.");
  bert::Options options;
  bert::add_options(app, options);
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  return deepspeed::launcher::exit_of_work("bert", [&] { bert::run(options); });
}
