// Trains a Llama on text, or scores tokens with it:
//   deepspeed --num_procs 2 llama --deepspeed_config ds_config.json --model FOLDER --data FILE --output
//   FOLDER llama --model FOLDER --inputs inputs.safetensors --logits logits.safetensors
#include <CLI/CLI.hpp>

#include "deepspeed/launcher/program_main.h"

#include "llama_run.h"

int main(int argc, char** argv) {
  CLI::App app("Fine-tunes a Llama of Hugging Face with deepspeed.");
  llama::Options options;
  llama::add_options(app, options);
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  return deepspeed::launcher::exit_of_work("llama", [&] { llama::run(options); });
}
