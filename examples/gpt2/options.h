// The program's command line.
#pragma once

#include <cstdint>
#include <string>

#include "gpt_config.h"
#include "run_options.h"
#include "sampler.h"

namespace CLI {
class App;
}

namespace gpt2 {

/// The model as a pipeline.
struct PipelineOptions {
  int64_t stages = 0;  // 0: each rank holds the whole model
  int64_t model_chunks = 1;
  int64_t recompute = 0;  // layers whose activations are computed again together; 0: all are kept
};

struct Options : examples::RunOptions {
  GptConfig model;         // its vocabulary follows from the data
  std::string save_dir;    // "": no checkpoints
  int64_t save_every = 0;  // 0: at the end alone
  std::string resume;      // a save_dir to go on from
  std::string resume_tag;  // "": its latest checkpoint
  examples::ModelFolders folders;
  PipelineOptions pipeline;
  SampleOptions sample{.num_tokens = 0};
  std::string fp32_weights;  // sample from these instead of training
};

/// Adds the options with their defaults and help; parsing `app` fills `options`.
void add_options(CLI::App& app, Options& options);

/// Throws deepspeed::UsageError for options that miss each other.
void validate(const Options& options);

}  // namespace gpt2
