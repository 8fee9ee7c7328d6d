// What the engine adds to a training loop: the GPT of the demo on one rank at stage 0 against a bare LibTorch
// loop with torch::optim::AdamW and clip_grad_norm_, and against forward and backward alone. Interleaved;
// losses are compared first.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include "deepspeed/deepspeed.h"
#include "deepspeed/launcher/program_main.h"

#include "examples/gpt2/gpt.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Batch {
  at::Tensor tokens, targets;
};

Batch make_batch(int64_t step, int64_t batch, const gpt2::GptConfig& config) {
  const auto base = torch::arange(batch * (config.context + 1)).reshape({batch, config.context + 1});
  const auto text = (base * 7 + base.div(5, "floor") + step * 13).remainder(config.vocabulary);
  return {text.slice(1, 0, config.context).contiguous(), text.slice(1, 1).contiguous()};
}

std::shared_ptr<gpt2::GPT> make_model(const gpt2::GptConfig& config) {
  deepspeed::manual_seed(1);
  return std::make_shared<gpt2::GPT>(config);
}

class EngineLoop {
 public:
  EngineLoop(const gpt2::GptConfig& config, int64_t batch) {
    const deepspeed::Json json = {
        {"train_batch_size", batch},
        {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}, {"weight_decay", 0.1}}}}},
        {"gradient_clipping", 1.0}};
    engine_ = deepspeed::initialize(make_model(config), {.config = json}).engine;
  }
  double step(const Batch& batch) {
    const auto loss = engine_->forward(batch.tokens, batch.targets);
    engine_->backward(loss);
    engine_->step();
    return loss.item<double>();
  }

 private:
  std::shared_ptr<deepspeed::DeepSpeedEngine<gpt2::GPT>> engine_;
};

class BareLoop {
 public:
  BareLoop(const gpt2::GptConfig& config, bool update)
      : model_(make_model(config)),
        optimizer_(model_->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(0.1)),
        update_(update) {}
  double step(const Batch& batch) {
    optimizer_.zero_grad();
    const auto loss = model_->forward(batch.tokens, batch.targets);
    loss.backward();
    if (update_) {
      torch::nn::utils::clip_grad_norm_(model_->parameters(), 1.0);
      optimizer_.step();
    }
    return loss.item<double>();
  }

 private:
  std::shared_ptr<gpt2::GPT> model_;
  torch::optim::AdamW optimizer_;
  bool update_;
};

template <class Loop>
double timed(Loop& loop, const Batch& batch, std::vector<double>& milliseconds) {
  const auto start = Clock::now();
  const double loss = loop.step(batch);
  milliseconds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  return loss;
}

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Engine against a bare LibTorch loop"};
  int64_t steps = 60, batch = 8, threads = 1;
  app.add_option("--steps", steps, "timed steps of each loop");
  app.add_option("--batch", batch, "sequences a step");
  app.add_option("--threads", threads, "threads");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;

  gpt2::GptConfig config;
  config.vocabulary = 96;
  EngineLoop engine(config, batch);
  at::set_num_threads(static_cast<int>(threads));
  BareLoop bare(config, true), compute(config, false);
  std::vector<double> engine_ms, bare_ms, compute_ms;
  double largest = 0.0;
  for (int64_t step = 0; step < steps + 5; ++step) {
    if (step == 5) engine_ms.clear(), bare_ms.clear(), compute_ms.clear();
    const Batch data = make_batch(step, batch, config);
    const double ours = timed(engine, data, engine_ms);
    const double theirs = timed(bare, data, bare_ms);
    timed(compute, data, compute_ms);
    largest = std::max(largest, std::abs(ours - theirs) / theirs);
  }
  if (!(largest < 1e-3)) {
    std::fprintf(stderr, "the losses differ by %g relative: nothing is timed\n", largest);
    return 1;
  }
  std::printf("losses agree within %.1e relative over %ld steps\n", largest, static_cast<long>(steps + 5));
  std::printf("| loop | min ms | median ms | p90 ms | of the bare loop |\n|---|---|---|---|---|\n");
  const double reference = percentile(bare_ms, 0.5);
  const auto row = [&](const char* name, const std::vector<double>& values) {
    std::printf("| %s | %.2f | %.2f | %.2f | %.3f |\n", name, percentile(values, 0.0),
                percentile(values, 0.5), percentile(values, 0.9), percentile(values, 0.5) / reference);
  };
  row("bare LibTorch loop", bare_ms);
  row("engine, stage 0", engine_ms);
  row("forward and backward alone", compute_ms);
  return 0;
}
