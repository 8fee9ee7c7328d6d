// The loop of the examples: forward, backward, step, evaluation, and what a run says of itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <torch/utils.h>

#include <deepspeed/deepspeed.h>

#include "loss_log.h"
#include "progress.h"
#include "run_options.h"
#include "text_data.h"

namespace examples {

inline constexpr int64_t kEvalBatch = 32;  // held-out windows a forward pass

struct HeldOut {
  double loss = 0.0;  // mean, nats a token
  int64_t num_tokens = 0;
};

/// Evaluates a share of the windows on every rank; all get the mean over all of them. `loss_of(batch, first)`
/// returns the loss of windows that begin at number `first`.
template <class Engine, class LossOf>
HeldOut evaluate(Engine& engine, TextWindows& windows, const LossOf& loss_of) {
  torch::NoGradGuard no_grad;
  engine.eval();
  const int64_t rank = engine.world().rank(), world_size = engine.world().size();
  const auto num_windows = static_cast<int64_t>(*windows.size());
  double sum = 0.0;
  for (int64_t first = 0; first < num_windows; first += kEvalBatch * world_size) {
    // A rank whose share of the last round is empty still goes through the model, since others would wait for
    // it where parameters are partitioned, and does not count the result.
    std::vector<TokenBatch> examples;
    const int64_t begin = first + rank * kEvalBatch;
    for (int64_t i = begin; i < std::min(begin + kEvalBatch, num_windows); ++i) {
      examples.push_back(windows.get(static_cast<size_t>(i)));
    }
    const auto count = static_cast<double>(examples.size());
    if (examples.empty()) examples.push_back(windows.get(0));
    auto batch = stack(examples);
    batch = {batch.tokens.to(engine.device()), batch.targets.to(engine.device())};
    sum += count * loss_of(batch, begin).template item<double>();
  }
  engine.train();
  sum = engine.world().group().all_reduce_scalar(sum);
  return {sum / static_cast<double>(num_windows), num_windows * windows.get(0).tokens.numel()};
}

/// Trains until the options' number of steps, or until a preemption was requested. `loss_of(batch)` returns
/// the loss of a batch of the loader. `after_update(step, is_last)` is called after each update. The mean
/// loss over ranks and micro batches is logged.
template <class Engine, class Loader, class LossOf, class AfterUpdate>
void train_steps(Engine& engine, Loader& loader, const RunOptions& options, Progress& progress,
                 const LossOf& loss_of, const AfterUpdate& after_update) {
  LossLog loss_log(engine.world().rank() == 0 ? options.loss_log : "");
  double micro_losses = 0.0;
  int64_t num_micro_losses = 0;
  progress.restart_clock();
  while (engine.global_steps() < options.steps && !engine.preemption_requested()) {  // once an epoch
    for (auto& batch : loader) {
      auto loss = loss_of(batch);
      micro_losses += loss.template item<double>();
      ++num_micro_losses;
      const bool updates = engine.is_gradient_accumulation_boundary();
      engine.backward(loss);
      engine.step();
      if (!updates) continue;

      const int64_t step = engine.global_steps();
      const double mean_loss =
          engine.world().group().all_reduce_scalar(micro_losses / static_cast<double>(num_micro_losses)) /
          static_cast<double>(engine.world().size());
      micro_losses = 0.0;
      num_micro_losses = 0;
      loss_log.write(step, mean_loss);
      progress.step(step, mean_loss, engine.get_lr().front(), engine.get_global_grad_norm());

      const bool is_last = step >= options.steps || engine.preemption_requested();
      after_update(step, is_last);
      progress.restart_clock();
      if (is_last) break;
    }
  }
}

/// Trains an engine on windows of tokens and notes the held-out loss, at the end and where the options say
/// so. `loss_of(batch, number)`: `number` is another one for each batch of a rank.
template <class Engine, class Loader, class LossOf>
void train_and_evaluate(Engine& engine, Loader& loader, TextWindows& held_out, const RunOptions& options,
                        Progress& progress, const LossOf& loss_of) {
  const auto evaluate_and_note = [&] {
    const HeldOut found = evaluate(engine, held_out, loss_of);
    progress.note(deepspeed::message("held-out loss ", found.loss, " nats a token (step ",
                                     engine.global_steps(), ", ", found.num_tokens, " tokens)"));
  };
  train_steps(
      engine, loader, options, progress,
      [&](const TokenBatch& batch) {
        return loss_of(batch, engine.micro_steps() * engine.world().size() + engine.world().rank());
      },
      [&](int64_t step, bool is_last) {
        if (options.eval_every > 0 && step % options.eval_every == 0 && !is_last) evaluate_and_note();
      });
  evaluate_and_note();
}

}  // namespace examples
