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
#include "loss_log.h"
#include "model_file.h"
#include "progress.h"
#include "run_checkpoints.h"
#include "text_data.h"

namespace gpt2 {
namespace {

constexpr int64_t kEvalBatch = 32;  // held-out windows a forward pass

struct HeldOut {
  double loss = 0.0;  // mean, nats a token
  int64_t num_tokens = 0;
};

/// Evaluates a share of the windows on every rank; all get the mean over all of them.
template <class Engine>
HeldOut evaluate(Engine& engine, TextWindows& windows, int64_t context) {
  torch::NoGradGuard no_grad;
  engine.eval();
  const int64_t rank = engine.world().rank(), world_size = engine.world().size();
  const auto num_windows = static_cast<int64_t>(*windows.size());
  const auto device = engine.module().parameters().front().device();
  double sum = 0.0;
  for (int64_t first = 0; first < num_windows; first += kEvalBatch * world_size) {
    // A rank whose share of the last round is empty still goes through the model, since others would wait for
    // it where parameters are partitioned, and does not count the result.
    std::vector<GptBatch> examples;
    const int64_t begin = first + rank * kEvalBatch;
    for (int64_t i = begin; i < std::min(begin + kEvalBatch, num_windows); ++i) {
      examples.push_back(windows.get(static_cast<size_t>(i)));
    }
    const auto count = static_cast<double>(examples.size());
    if (examples.empty()) examples.push_back(windows.get(0));
    const auto batch = stack(examples);
    sum += count * engine.forward(batch.tokens.to(device), batch.targets.to(device)).template item<double>();
  }
  engine.train();
  sum = engine.world().group().all_reduce_scalar(sum);
  return {sum / static_cast<double>(num_windows), num_windows * context};
}

std::string describe(const GPT& model, const TextData& data) {
  int64_t num_parameters = 0;
  for (const auto& parameter : model.parameters()) num_parameters += parameter.numel();
  const auto& config = model.config();
  return deepspeed::message("GPT-2 of ", num_parameters, " parameters (", config.layers, " layers, width ",
                            config.width, ", context ", config.context, "); ",
                            *data.train.size() + size_t(config.context), " characters to train on, ",
                            config.vocabulary, " different ones");
}

}  // namespace

void train(const Options& options) {
  auto world = deepspeed::comm::init_distributed();
  deepspeed::manual_seed(options.seed);

  auto data = make_text_data(options.data.empty() ? read_default_text() : read_text(options.data),
                             options.model.context);
  GptConfig config = options.model;
  config.vocabulary = data.vocabulary.size();
  const ModelFile model_file{config, data.vocabulary};

  auto model = std::make_shared<GPT>(config);
  auto [engine, optimizer, loader, lr_scheduler] =
      deepspeed::initialize(model, data.train, {.config = options.config.config_path()});

  const bool first_rank = world.rank() == 0;
  Progress progress(stdout, !first_rank, options.steps, options.log_every,
                    engine->config().train_batch_size * config.context);
  LossLog loss_log(first_rank ? options.loss_log : "");
  progress.note(describe(*model, data));
  if (!options.resume.empty()) progress.note(resume(*engine, options, model_file));

  const auto evaluate_and_note = [&, &engine = engine] {
    const HeldOut held_out = evaluate(*engine, data.held_out, config.context);
    progress.note(deepspeed::message("held-out loss ", held_out.loss, " nats a character (step ",
                                     engine->global_steps(), ", ", held_out.num_tokens, " characters)"));
  };

  double micro_losses = 0.0;
  int64_t num_micro_losses = 0;
  progress.restart_clock();
  if (!options.save_dir.empty()) engine->install_preemption_handler();
  while (engine->global_steps() < options.steps && !engine->preemption_requested()) {  // once an epoch
    for (auto& batch : *loader) {
      auto loss = engine->forward(batch.tokens, batch.targets);
      micro_losses += loss.item<double>();
      ++num_micro_losses;
      const bool updates = engine->is_gradient_accumulation_boundary();
      engine->backward(loss);
      engine->step();
      if (!updates) continue;

      const int64_t step = engine->global_steps();
      const double mean_loss =
          world.group().all_reduce_scalar(micro_losses / static_cast<double>(num_micro_losses)) /
          static_cast<double>(world.size());
      micro_losses = 0.0;
      num_micro_losses = 0;
      loss_log.write(step, mean_loss);
      progress.step(step, mean_loss, engine->get_lr().front(), engine->get_global_grad_norm());

      const bool last = step >= options.steps || engine->preemption_requested();
      if (options.eval_every > 0 && step % options.eval_every == 0 && !last) evaluate_and_note();
      if (!options.save_dir.empty() && (last || (options.save_every > 0 && step % options.save_every == 0))) {
        save(*engine, options.save_dir, model_file);
      }
      progress.restart_clock();
      if (last) break;
    }
  }
  evaluate_and_note();
  if (options.sample.num_tokens > 0) {
    // All ranks sample: parameters that are partitioned among them are gathered as the sampling uses them.
    const deepspeed::zero::ParameterAccess access(model->parameters(),
                                                  deepspeed::zero::AccessMode::kEvaluation);
    progress.note(sample(*model, data.vocabulary, options.sample));
  }
  world.shutdown();
}

}  // namespace gpt2
