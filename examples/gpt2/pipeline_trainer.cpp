#include "pipeline_trainer.h"

#include <cstdio>

#include <deepspeed/deepspeed.h>
#include <deepspeed/pipe.h>

#include "gpt_layers.h"
#include "loss_log.h"
#include "progress.h"
#include "run_checkpoints.h"
#include "text_data.h"

namespace gpt2 {
namespace {

using deepspeed::pipe::MicroBatch;
using examples::TextWindows;
using examples::TokenBatch;

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), targets.flatten());
}

std::shared_ptr<deepspeed::PipelineModule> make_module(const Options& options, const GptConfig& config) {
  return std::make_shared<deepspeed::PipelineModule>(
      gpt_layers(config, options.seed),
      deepspeed::PipelineModuleOptions{.num_stages = int(options.pipeline.stages),
                                       .loss_fn = loss_of,
                                       .activation_checkpoint_interval = int(options.pipeline.recompute),
                                       .model_chunks = int(options.pipeline.model_chunks)});
}

}  // namespace

void train_pipeline(const Options& options) {
  auto world = deepspeed::comm::init_distributed();
  deepspeed::manual_seed(options.seed);
  auto data = examples::make_text_data(
      options.data.empty() ? examples::read_default_text() : examples::read_text(options.data),
      options.model.context);
  GptConfig config = options.model;
  config.vocabulary = data.vocabulary.size();
  const ModelFile model_file{config, data.vocabulary};

  const auto model = make_module(options, config);
  // Layers have seeds of their own; the order of the data follows from this one.
  deepspeed::manual_seed(options.seed);
  const auto engine = deepspeed::initialize(model, {.config = options.config.config_path()}).engine;
  const auto loader =
      std::make_shared<deepspeed::DeepSpeedDataLoader<TextWindows>>(data.train, engine->loader_options({}));
  engine->track_loader(loader->position());
  auto batches =
      std::make_shared<deepspeed::RepeatingLoader<deepspeed::DeepSpeedDataLoader<TextWindows>>>(loader);
  engine->set_dataiterator(deepspeed::pipe::DataIterator([batches] {
    const TokenBatch& batch = batches->next();
    return MicroBatch{{batch.tokens}, {batch.targets}};
  }));

  const bool first_rank = world.rank() == 0;
  examples::Progress progress(stdout, !first_rank, options.steps, options.log_every,
                              engine->config().train_batch_size * config.context);
  examples::LossLog loss_log(first_rank ? options.loss_log : "");
  if (!options.resume.empty()) progress.note(resume(*engine, options, model_file));
  progress.note(deepspeed::message("pipeline of ", engine->num_stages(), " stages, ", engine->dp_world_size(),
                                   " data-parallel ranks"));
  progress.restart_clock();
  while (engine->global_steps() < options.steps) {
    const double loss = engine->train_batch().item<double>();
    const int64_t step = engine->global_steps();
    loss_log.write(step, loss);
    progress.step(step, loss, engine->get_lr().front(), engine->get_global_grad_norm());
    const bool is_due = options.save_every > 0 && step % options.save_every == 0;
    if (!options.save_dir.empty() && (is_due || step == options.steps)) {
      save(*engine, options.save_dir, model_file);
      progress.restart_clock();
    }
  }
  world.shutdown();
}

}  // namespace gpt2
