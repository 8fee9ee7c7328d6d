// The training loop around an engine.
//
// train() reads the text, builds the model from the seed, and lets initialize() make engine and loader. A
// resume checks that the checkpoint is of this model. Each batch goes through forward, backward and step;
// where an update was made, its mean loss over ranks and micro batches is logged, and held-out loss and
// checkpoints follow their intervals. A SIGTERM ends the loop after an update and a save. At the end the
// model is evaluated, and sampled from where that is asked for.
#include "trainer.h"

#include <cstdio>
#include <optional>

#include <torch/utils.h>

#include <deepspeed/deepspeed.h>

#include "gpt.h"
#include "hugging_face.h"
#include "model_file.h"
#include "run_checkpoints.h"
#include "text_data.h"
#include "training_loop.h"

namespace gpt2 {
namespace {

using examples::TextData;
using examples::TokenBatch;

std::string describe(const GPT& model, const TextData& data) {
  int64_t num_parameters = 0;
  for (const auto& parameter : model.parameters()) num_parameters += parameter.numel();
  const auto& config = model.config();
  return deepspeed::message("GPT-2 of ", num_parameters, " parameters (", config.layers, " layers, width ",
                            config.width, ", context ", config.context, "); ",
                            *data.train.size() + size_t(config.context), " characters to train on, ",
                            config.vocabulary, " different ones");
}

/// Reads what the model is that a run begins with, where there is one.
std::optional<HuggingFaceGpt> given_model(const Options& options) {
  if (options.folders.model.empty()) return std::nullopt;
  return read_hugging_face(options.folders.model);
}

void check_vocabulary(const HuggingFaceGpt& given, const TextData& data) {
  if (given.config.vocabulary == data.vocabulary.size()) return;
  deepspeed::raise<deepspeed::UsageError>("the model has a vocab_size of ", given.config.vocabulary,
                                          ", and the text has ", data.vocabulary.size(),
                                          " different characters; train on the text of the model's run");
}

}  // namespace

void train(const Options& options) {
  auto world = deepspeed::comm::init_distributed();
  deepspeed::manual_seed(options.seed);

  const auto given = given_model(options);
  GptConfig config = given ? given->config : options.model;
  auto data = examples::make_text_data(
      options.data.empty() ? examples::read_default_text() : examples::read_text(options.data),
      config.context);
  if (given) check_vocabulary(*given, data);
  config.vocabulary = data.vocabulary.size();
  const ModelFile model_file{config, data.vocabulary};

  auto model = std::make_shared<GPT>(config);
  auto [engine, optimizer, loader, lr_scheduler] =
      deepspeed::initialize(model, data.train, {.config = options.config.config_path()});
  if (given) load_hugging_face(*engine, options.folders.model);

  const bool first_rank = world.rank() == 0;
  examples::Progress progress(stdout, !first_rank, options.steps, options.log_every,
                              engine->config().train_batch_size * config.context);
  progress.note(describe(*model, data));
  if (!options.resume.empty()) progress.note(resume(*engine, options, model_file));
  if (!options.save_dir.empty()) engine->install_preemption_handler();

  const auto loss_of = [&, &engine = engine](const TokenBatch& batch) {
    return engine->forward(batch.tokens, batch.targets);
  };
  const auto evaluate_and_note = [&, &engine = engine] {
    const auto held_out = examples::evaluate(
        *engine, data.held_out, [&](const TokenBatch& batch, int64_t) { return loss_of(batch); });
    progress.note(deepspeed::message("held-out loss ", held_out.loss, " nats a character (step ",
                                     engine->global_steps(), ", ", held_out.num_tokens, " characters)"));
  };
  examples::train_steps(*engine, *loader, options, progress, loss_of,
                        [&, &engine = engine](int64_t step, bool is_last) {
                          if (options.eval_every > 0 && step % options.eval_every == 0 && !is_last)
                            evaluate_and_note();
                          if (!options.save_dir.empty() &&
                              (is_last || (options.save_every > 0 && step % options.save_every == 0))) {
                            save(*engine, options.save_dir, model_file);
                          }
                        });
  evaluate_and_note();
  if (!options.folders.output.empty()) {
    save_hugging_face(*engine, options.folders.output, config, given ? given->other_keys : deepspeed::Json());
    progress.note("wrote the model to " + options.folders.output);
  }
  if (options.sample.num_tokens > 0) {
    // All ranks sample: parameters that are partitioned among them are gathered as the sampling uses them.
    const deepspeed::zero::ParameterAccess access(model->parameters(),
                                                  deepspeed::zero::AccessMode::kEvaluation);
    progress.note(sample(*model, data.vocabulary, options.sample));
  }
  world.shutdown();
}

}  // namespace gpt2
