// Tokens a second of the engine on GPT-2 (bf16 with fp32 masters, AdamW, one rank) on the GPU, or on the CPU
// where there is none. Prints one line of JSON; benchmarks/gpu/ runs it beside PyTorch on the same weights
// and tokens.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>

#include <CLI/CLI.hpp>

#include "deepspeed/checkpoint/torch_archive.h"
#include "deepspeed/deepspeed.h"
#include "deepspeed/device/current_device.h"
#include "deepspeed/device/memory.h"

#include "examples/gpt2/gpt.h"

namespace {

using Clock = std::chrono::steady_clock;
using deepspeed::Json;

struct Options {
  gpt2::GptConfig model{.vocabulary = 50304, .context = 1024, .layers = 12, .heads = 12, .width = 768};
  int64_t micro_batch = 8;
  int64_t steps = 20;
  int64_t warmup = 5;
  std::string zero = R"({"stage": 0})";  // the config's section zero_optimization
  double clipping = 1.0;
  std::string weights;  // where the first weights are written, for the peer
};

Options read_options(int argc, char** argv) {
  Options options;
  CLI::App app{"GPT-2's tokens a second"};
  app.add_option("--layers", options.model.layers, "blocks");
  app.add_option("--heads", options.model.heads, "attention heads");
  app.add_option("--width", options.model.width, "width of the residual stream");
  app.add_option("--context", options.model.context, "tokens of a sequence");
  app.add_option("--vocabulary", options.model.vocabulary, "different tokens");
  app.add_option("--micro_batch", options.micro_batch, "sequences a step");
  app.add_option("--steps", options.steps, "timed steps");
  app.add_option("--warmup", options.warmup, "steps before them");
  app.add_option("--zero", options.zero, "the config's section zero_optimization, JSON");
  app.add_option("--clipping", options.clipping, "gradient clipping, 0: none");
  app.add_option("--weights", options.weights, "file for the first weights, readable by torch.load");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  return options;
}

/// Tokens by formula, the same in torch_peer.py: (B, T + 1).
at::Tensor make_text(int64_t step, const Options& options) {
  const int64_t length = options.model.context + 1;
  const auto index = at::arange(options.micro_batch * length, at::kLong);
  return ((index * 7919 + index.div(5, "floor") + step * 104729) % options.model.vocabulary)
      .reshape({options.micro_batch, length});
}

void write_weights(const gpt2::GPT& model, const std::string& file) {
  deepspeed::checkpoint::Dict dict;
  for (const auto& entry : model.named_parameters()) dict.set(entry.key(), entry.value().detach());
  deepspeed::checkpoint::write_torch_archive(file, dict);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  deepspeed::manual_seed(1);
  auto model = std::make_shared<gpt2::GPT>(options.model);
  if (!options.weights.empty()) write_weights(*model, options.weights);
  int64_t parameters = 0;
  for (const auto& parameter : model->parameters()) parameters += parameter.numel();
  const Json config = {{"train_micro_batch_size_per_gpu", options.micro_batch},
                       {"bf16", {{"enabled", true}}},
                       {"gradient_clipping", options.clipping},
                       {"zero_optimization", Json::parse(options.zero)},
                       {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-4}, {"weight_decay", 0.1}}}}}};
  const auto engine = std::get<0>(deepspeed::initialize(model, {.config = config}));

  const auto device = engine->device();
  std::vector<at::Tensor> losses;
  std::vector<double> step_ms;
  for (int64_t step = 0; step < options.warmup + options.steps; ++step) {
    const auto text = make_text(step, options).to(device);
    const auto tokens = text.narrow(1, 0, options.model.context).contiguous();
    const auto targets = text.narrow(1, 1, options.model.context).contiguous();
    const auto start = Clock::now();
    const auto loss = engine->forward(tokens, targets);
    engine->backward(loss);
    engine->step();
    losses.push_back(loss.detach());
    deepspeed::device::synchronize();
    step_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }

  std::vector<double> timed(step_ms.begin() + options.warmup, step_ms.end());
  std::sort(timed.begin(), timed.end());
  const double median = timed[timed.size() / 2];
  Json result = {
      {"parameters", parameters},
      {"device", device.is_cuda() ? "cuda" : "cpu"},
      {"step_ms", median},
      {"host_peak_bytes", deepspeed::device::peak_resident_bytes()},
      {"tokens_per_s", 1e3 * static_cast<double>(options.micro_batch * options.model.context) / median},
      {"peak_bytes", device.is_cuda() ? deepspeed::device::cuda_peak_allocated_bytes()
                                      : deepspeed::device::peak_resident_bytes()}};
  for (const auto& loss : losses) result["losses"].push_back(loss.item<double>());
  std::printf("%s\n", result.dump().c_str());
  return 0;
}
