#include "sampler.h"

#include <algorithm>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <torch/utils.h>

#include <deepspeed/deepspeed.h>

#include "gpt.h"
#include "model_file.h"
#include "text_data.h"

namespace gpt2 {
namespace {

std::string start_of(const SampleOptions& options, const Vocabulary& vocabulary) {
  if (!options.prompt.empty()) return options.prompt;
  const auto& bytes = vocabulary.bytes();
  const bool has_line_end = std::find(bytes.begin(), bytes.end(), '\n') != bytes.end();
  return std::string(1, has_line_end ? '\n' : static_cast<char>(bytes.front()));
}

/// Draws a token from the scores: (vocabulary) -> (1) int64.
at::Tensor choose(const at::Tensor& scores, double temperature, const at::Generator& generator) {
  if (temperature == 0.0) return at::argmax(scores, 0, /*keepdim=*/true);
  return at::multinomial(at::softmax(scores / temperature, 0), 1, /*replacement=*/false, generator);
}

}  // namespace

std::string sample(GPT& model, const Vocabulary& vocabulary, const SampleOptions& options) {
  if (options.num_tokens < 0 || options.temperature < 0.0) {
    deepspeed::raise<deepspeed::UsageError>("got ", options.num_tokens, " tokens at temperature ",
                                            options.temperature, ", expected neither to be negative");
  }
  torch::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  const auto device = model.parameters().front().device();
  const auto generator = at::detail::createCPUGenerator(options.seed);
  const int64_t context = model.config().context;
  auto tokens = vocabulary.encode(start_of(options, vocabulary));  // (T)
  KeyValueCache cache;
  int64_t unread = tokens.numel();
  for (int64_t i = 0; i < options.num_tokens; ++i) {
    if (cache.length + unread > context) {
      // The positions begin anew: the model reads the last half of its context again, so that there is room.
      const int64_t kept = cache.length == 0 ? context : std::max<int64_t>(context / 2, 1);
      unread = std::min(tokens.numel(), kept);
      cache.clear();
    }
    const auto seen = tokens.narrow(0, tokens.numel() - unread, unread).unsqueeze(0).to(device);  // (1, T)
    // Where ranks share the parameters out, a pass gathers what it uses, and learns from the last one in
    // which order; else this does nothing.
    const deepspeed::zero::ParameterAccess access(model.parameters(),
                                                  deepspeed::zero::AccessMode::kEvaluation);
    const auto scores = model.logits(seen, &cache).select(1, unread - 1).squeeze(0).to(at::kCPU, at::kFloat);
    tokens = at::cat({tokens, choose(scores, options.temperature, generator)});
    unread = 1;
  }
  model.train(was_training);
  return vocabulary.decode(tokens);
}

std::string sample_from_file(const std::filesystem::path& weights, const std::filesystem::path& run_folder,
                             const SampleOptions& options, const std::string& ds_config) {
  const ModelFile run = read_model_file(run_folder);
  const auto model = std::make_shared<GPT>(run.config);
  if (ds_config.empty()) {
    load_weights(*model, weights);
    return sample(*model, run.vocabulary, options);
  }
  const auto engine = deepspeed::initialize(model, {.config = ds_config}).engine;
  deepspeed::load_weights(*engine, weights);
  return sample(*model, run.vocabulary, options);
}

}  // namespace gpt2
