#include "bert_run.h"

#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <deepspeed/deepspeed.h>

#include "bert.h"
#include "bert_weights.h"
#include "masking.h"
#include "model_folder.h"
#include "training_loop.h"

namespace bert {
using examples::TokenBatch;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaskToken = 256;  // behind the bytes, which are the other tokens

void write_logits(const examples::ModelFolders& folders) {
  const torch::NoGradGuard no_grad;
  Bert model(read_bert_config(folders.model));
  load_bert(model, folders.model);
  model.eval();
  const auto inputs =
      examples::read_inputs(folders.inputs, {"input_ids", "attention_mask", "token_type_ids"});
  const auto find = [&](const char* name) {
    const auto found = inputs.find(name);
    return found == inputs.end() ? at::Tensor() : found->second;
  };
  examples::write_logits(folders.logits,
                         model.logits(find("input_ids"), {find("attention_mask"), find("token_type_ids")}));
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

void save_bert(deepspeed::TrainingEngine& engine, const BertConfig& config, const fs::path& folder) {
  auto tensors = with_hugging_face_names(examples::whole_tensors(engine));
  if (!config.tie_word_embeddings) repeat_bias_of_decoder(tensors);
  if (engine.rank() == 0) examples::write_model_folder(folder, to_json(config), tensors);
}

void run(const Options& options) {
  check(options);
  const auto& folders = options.folders;
  if (!folders.inputs.empty()) return write_logits(folders);
  auto world = deepspeed::comm::init_distributed();
  deepspeed::manual_seed(options.seed);
  const auto config = read_bert_config(folders.model.empty() ? folders.new_model : folders.model);
  if (config.vocab_size <= kMaskToken) {
    deepspeed::raise<deepspeed::UsageError>("vocab_size is ", config.vocab_size, ", expected at least ",
                                            kMaskToken + 1, ": the bytes, and the mask");
  }
  auto data =
      examples::make_token_data(examples::read_training_tokens(options.data, kMaskToken), options.context);
  auto model = std::make_shared<Bert>(config);
  std::vector<std::string> left_out;
  if (!folders.model.empty()) left_out = load_bert(*model, folders.model);
  auto [engine, optimizer, loader, lr_scheduler] =
      deepspeed::initialize(model, data.train, {.config = options.config.config_path()});

  examples::Progress progress(stdout, world.rank() != 0, options.steps, options.log_every,
                              engine->config().train_batch_size * options.context);
  for (const auto& name : left_out) progress.note("left out " + name + ", which this model does not use");
  examples::train_and_evaluate(*engine, *loader, data.held_out, options, progress,
                               [&, &engine = engine](const TokenBatch& batch, int64_t number) {
                                 const auto masked = mask_tokens(
                                     batch.tokens, kMaskToken, options.seed + static_cast<uint64_t>(number));
                                 return engine->forward(masked.tokens, masked.targets);
                               });
  if (!folders.output.empty()) {
    save_bert(*engine, config, folders.output);
    progress.note("wrote the model to " + folders.output);
  }
  world.shutdown();
}

}  // namespace bert
