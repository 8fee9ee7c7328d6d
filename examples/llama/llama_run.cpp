#include "llama_run.h"

#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <deepspeed/deepspeed.h>

#include "llama.h"
#include "model_folder.h"
#include "training_loop.h"

namespace llama {
using examples::TokenBatch;
namespace fs = std::filesystem;

namespace {

/// Some files hold the head, although it is the embedding, and older ones what rotary embedding computes.
deepspeed::LoadWeightsOptions load_options(const LlamaConfig& config) {
  deepspeed::LoadWeightsOptions options{.rename_rules = {{"^.*\\.rotary_emb\\.inv_freq$", ""}}};
  if (config.tie_word_embeddings) options.rename_rules.push_back({"^lm_head\\.weight$", ""});
  return options;
}

void write_logits(const examples::ModelFolders& folders) {
  const torch::NoGradGuard no_grad;
  const auto model = std::make_shared<Llama>(read_llama_config(folders.model));
  load_llama(model, folders.model);
  model->eval();
  const auto inputs = examples::read_inputs(folders.inputs, {"input_ids"});
  examples::write_logits(folders.logits, model->logits(inputs.at("input_ids")));
}

/// Makes the model. At stage 3 its parameters are shared out as they are made: no rank holds all of them.
std::shared_ptr<Llama> make_model(const LlamaConfig& config, const std::string& ds_config,
                                  int64_t num_ranks) {
  const bool is_stage_3 = deepspeed::config::load_config(ds_config, num_ranks).zero_optimization.stage == 3;
  const deepspeed::zero::Init init({.config_dict_or_path = ds_config, .enabled = is_stage_3});
  return std::make_shared<Llama>(config);
}

void check(const Options& options) {
  const auto reject = [](const char* text) { deepspeed::raise<deepspeed::UsageError>(text); };
  examples::validate(options.folders);
  if (!options.folders.inputs.empty()) return;
  if (options.config.config_path().empty()) reject("training needs --deepspeed_config FILE");
  if (options.folders.model.empty() && options.folders.new_model.empty())
    reject("training needs --model FOLDER, or --new_model with a config.json");
}

}  // namespace

void add_options(CLI::App& app, Options& options) {
  examples::add_run_options(app, options);
  examples::add_model_folders(app, options.folders, /*has_new_model=*/true);
  app.add_option("--context", options.context, "tokens of a window")
      ->group("Training")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void load_llama(const std::shared_ptr<Llama>& model, const fs::path& folder) {
  deepspeed::load_weights(model, folder, load_options(model->config()));
}

void load_llama(deepspeed::TrainingEngine& engine, const LlamaConfig& config, const fs::path& folder) {
  deepspeed::load_weights(engine, folder, load_options(config));
}

void save_llama(deepspeed::TrainingEngine& engine, const LlamaConfig& config, const fs::path& folder) {
  const auto tensors = examples::whole_tensors(engine);
  if (engine.rank() == 0) examples::write_model_folder(folder, to_json(config), tensors);
}

void run(const Options& options) {
  check(options);
  const auto& folders = options.folders;
  if (!folders.inputs.empty()) return write_logits(folders);
  auto world = deepspeed::comm::init_distributed();
  deepspeed::manual_seed(options.seed);
  const auto config = read_llama_config(folders.model.empty() ? folders.new_model : folders.model);
  auto data = examples::make_token_data(examples::read_training_tokens(options.data, config.vocab_size),
                                        options.context);
  const std::string& ds_config = options.config.config_path();
  auto model = make_model(config, ds_config, world.size());
  auto [engine, optimizer, loader, lr_scheduler] =
      deepspeed::initialize(model, data.train, {.config = ds_config});
  if (!folders.model.empty()) load_llama(*engine, config, folders.model);

  examples::Progress progress(stdout, world.rank() != 0, options.steps, options.log_every,
                              engine->config().train_batch_size * options.context);
  examples::train_and_evaluate(*engine, *loader, data.held_out, options, progress,
                               [&, &engine = engine](const TokenBatch& batch, int64_t) {
                                 return engine->forward(batch.tokens, batch.targets);
                               });
  if (!folders.output.empty()) {
    save_llama(*engine, config, folders.output);
    progress.note("wrote the model to " + folders.output);
  }
  world.shutdown();
}

}  // namespace llama
