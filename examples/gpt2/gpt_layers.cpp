#include "gpt_layers.h"

#include <ATen/ops/arange.h>

#include <deepspeed/initialize.h>

#include "gpt.h"

namespace gpt2 {
namespace {

using deepspeed::LayerSpec;
using deepspeed::TiedLayerSpec;

class Embeddings : public torch::nn::Module {
 public:
  Embeddings(const GptConfig& config, uint64_t seed)
      : dropout_(config.dropout),
        wte(register_module("wte", deepspeed::ops::Embedding(config.vocabulary, config.width))),
        wpe(register_module("wpe", torch::nn::Embedding(config.context, config.width))) {
    deepspeed::manual_seed(seed);
    initialize_weights(*this, config);
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor positions = at::arange(tokens.size(1), tokens.options());
    return deepspeed::ops::dropout(wte->forward(tokens) + wpe->forward(positions), dropout_, is_training());
  }

 private:
  double dropout_;

 public:
  deepspeed::ops::Embedding wte;
  torch::nn::Embedding wpe;
};

/// A block that is drawn under a seed of its own.
class SeededBlock : public Block {
 public:
  SeededBlock(const GptConfig& config, uint64_t seed) : Block(config) {
    deepspeed::manual_seed(seed);
    initialize_weights(*this, config);
  }
  at::Tensor forward(const at::Tensor& hidden) { return Block::forward(hidden); }
};

}  // namespace

std::vector<LayerSpec> gpt_layers(const GptConfig& config, uint64_t seed) {
  const auto embeddings =
      TiedLayerSpec::of<Embeddings>("embeddings", config, seed).tied_weight_attr({"wte.weight"});
  std::vector<LayerSpec> layers = {embeddings};
  for (int64_t i = 0; i < config.layers; ++i)
    layers.push_back(LayerSpec::of<SeededBlock>(config, seed + 1 + uint64_t(i)));
  layers.push_back(LayerSpec::of<deepspeed::ops::LayerNorm>(config.width, config.norm_eps));
  layers.push_back(embeddings.forward_fn(
      [](Embeddings& module, const at::Tensor& hidden) { return at::linear(hidden, module.wte->weight); }));
  return layers;
}

}  // namespace gpt2
