// Trains a small GPT-2 on text, or samples from the weights of such a run:
//   deepspeed --num_procs 2 gpt2 --deepspeed_config ds_config.json --data FILE --save_dir checkpoints
//   gpt2 --fp32_weights pytorch_model.bin --save_dir checkpoints --sample 500
//   deepspeed --num_procs 2 gpt2 --deepspeed_config ds_zero_inference.json --fp32_weights pytorch_model.bin
//     --save_dir checkpoints --sample 500
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>

#include "deepspeed/comm/functions.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/launcher/program_main.h"

#include "hugging_face.h"
#include "options.h"
#include "pipeline_trainer.h"
#include "sampler.h"
#include "trainer.h"

namespace {

void print_sample(const gpt2::Options& options) {
  const auto text = gpt2::sample_from_file(options.fp32_weights, options.save_dir, options.sample,
                                           options.config.config_path());
  const bool is_job = deepspeed::comm::is_initialized();
  if (!is_job || deepspeed::comm::get_rank() == 0) std::printf("%s\n", text.c_str());
  if (is_job) deepspeed::comm::init_distributed().shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a small GPT-2 on text with deepspeed, character by character, and samples from it.");
  gpt2::Options options;
  gpt2::add_options(app, options);
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  return deepspeed::launcher::exit_of_work("gpt2", [&] {
    options.sample.seed = options.seed;
    gpt2::validate(options);
    if (!options.folders.inputs.empty()) {
      gpt2::write_logits(options.folders);
    } else if (options.fp32_weights.empty()) {
      options.pipeline.stages > 0 ? gpt2::train_pipeline(options) : gpt2::train(options);
    } else {
      print_sample(options);
    }
  });
}
