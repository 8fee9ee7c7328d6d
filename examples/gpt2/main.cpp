// Trains a small GPT-2 on text, or samples from the weights of such a run:
//   deepspeed --num_procs 2 gpt2 --deepspeed_config ds_config.json --data FILE --save_dir checkpoints
//   gpt2 --fp32_weights pytorch_model.bin --save_dir checkpoints --sample 500
#include <cstdio>
#include <exception>
#include <memory>

#include <CLI/CLI.hpp>

#include "model_file.h"
#include "options.h"
#include "sampler.h"
#include "trainer.h"

namespace {

void sample_from_file(const gpt2::Options& options) {
  const auto run = gpt2::read_model_file(options.save_dir);
  gpt2::GPT model(run.config);
  gpt2::load_weights(model, options.fp32_weights);
  std::printf("%s\n", gpt2::sample(model, run.vocabulary, options.sample).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a small GPT-2 on text with deepspeed, character by character, and samples from it.");
  gpt2::Options options;
  app.add_option("--deepspeed_config", options.deepspeed_config, "JSON config of deepspeed");
  gpt2::add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    options.sample.seed = options.seed;
    gpt2::validate(options);
    if (options.fp32_weights.empty()) {
      gpt2::train(options);
    } else {
      sample_from_file(options);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpt2: %s\n", error.what());
    return 1;
  }
  return 0;
}
