#include "options.h"

#include <CLI/CLI.hpp>

#include "deepspeed/base/error.h"

namespace gpt2 {
namespace {

void add_checkpoint_options(CLI::App& app, Options& options) {
  const std::string group = "Checkpoints";
  app.add_option("--save_dir", options.save_dir, "folder of the checkpoints (default: none are written)")
      ->group(group);
  app.add_option("--save_every", options.save_every, "steps between two checkpoints (0: at the end alone)")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--resume", options.resume, "go on from a checkpoint in this folder, a --save_dir of before")
      ->group(group);
  app.add_option("--resume_tag", options.resume_tag,
                 "which checkpoint, e.g. global_step800 (default: the latest)")
      ->group(group);
}

void add_pipeline_options(CLI::App& app, PipelineOptions& pipeline) {
  const std::string group = "Pipeline";
  app.add_option("--pipeline_stages", pipeline.stages,
                 "cut the model into so many stages; other ranks train other data")
      ->group(group)
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--model_chunks", pipeline.model_chunks,
         "parts of the model a stage, with \"pipeline\": {\"schedule\": \"interleaved\", ...} in the config")
      ->group(group)
      ->check(CLI::PositiveNumber);
  app.add_option("--recompute", pipeline.recompute,
                 "layers whose activations backward computes again together")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
}

// A model of --model has its own sizes.
void add_model_options(CLI::App& app, GptConfig& model) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    app.add_option(name, value, help)->group("Model")->capture_default_str()->excludes("--model");
  };
  add("--layers", model.layers, "number of blocks");
  add("--heads", model.heads, "attention heads a block");
  add("--width", model.width, "numbers a token, a multiple of the heads");
  add("--context", model.context, "longest sequence, in tokens");
  add("--dropout", model.dropout, "probability");
}

void add_sample_options(CLI::App& app, Options& options) {
  const std::string group = "Sampling";
  app.add_option("--sample", options.sample.num_tokens, "characters to sample (after training)")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--prompt", options.sample.prompt, "what the sample begins with")->group(group);
  app.add_option("--temperature", options.sample.temperature, "0: always the likeliest character")
      ->group(group)
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--fp32_weights", options.fp32_weights,
                 "sample from this file of zero_to_fp32 and do not train; --save_dir names the run it comes "
                 "from; with --deepspeed_config in an engine of that config, e.g. at stage 3 with parameters "
                 "on a disk")
      ->group(group);
}

}  // namespace

void add_options(CLI::App& app, Options& options) {
  examples::add_run_options(app, options);
  add_checkpoint_options(app, options);
  examples::add_model_folders(app, options.folders, /*has_new_model=*/false);
  add_model_options(app, options.model);
  add_pipeline_options(app, options.pipeline);
  add_sample_options(app, options);
}

void validate(const Options& options) {
  const auto reject = [](const auto&... parts) { deepspeed::raise<deepspeed::UsageError>(parts...); };
  examples::validate(options.folders);
  if (!options.folders.inputs.empty()) return;
  if (!options.fp32_weights.empty()) {
    if (options.save_dir.empty())
      reject("--fp32_weights needs --save_dir, the folder with the run's gpt2.json");
    if (options.sample.num_tokens == 0)
      reject("--fp32_weights needs --sample N, the number of characters to sample");
    return;
  }
  if (options.config.config_path().empty()) reject("training needs --deepspeed_config FILE");
  const auto& pipeline = options.pipeline;
  if (pipeline.stages == 0 && (pipeline.model_chunks > 1 || pipeline.recompute > 0))
    reject("--model_chunks and --recompute need --pipeline_stages");
  if (pipeline.stages > 0 && (options.sample.num_tokens > 0 || options.eval_every > 0))
    reject("--sample and --eval_every do not go with --pipeline_stages: sample from what zero_to_fp32 makes");
  if (pipeline.stages > 0 && !(options.folders.model.empty() && options.folders.output.empty()))
    reject("--model and --output do not go with --pipeline_stages, whose ranks have parts of the model each");
  if (!options.folders.model.empty() && !options.resume.empty())
    reject("--model begins a run and --resume goes on with one; leave one of them out");
  if (options.save_every > 0 && options.save_dir.empty()) reject("--save_every needs --save_dir");
  if (!options.resume_tag.empty() && options.resume.empty()) reject("--resume_tag needs --resume DIR");
}

}  // namespace gpt2
