// GPT-2 forward, from the tokens to the loss (Radford et al. 2019).
//
// Tokens and positions are embedded and added; each block adds the attention of the normalised stream, then
// an MLP of it; the last LayerNorm and the embedding's transpose give the scores. Query, key and value of all
// heads come from one product and are viewed, not copied. A sum and the norm behind it are one operator, and
// training never has the scores as a whole. With a cache only the new positions pass through: each layer
// appends their keys and values to its own and attends to all of them.
#include "gpt.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/GradMode.h>
#include <torch/nn/init.h>

#include "deepspeed/base/error.h"

namespace gpt2 {
namespace ops = deepspeed::ops;

namespace {

constexpr double kInitialDeviation = 0.02;  // for every weight of GPT-2

/// Writes the keys or values of new positions, (B, H, T, D), behind the `past` ones of the cache; returns
/// all.
at::Tensor append(at::Tensor& cached, const at::Tensor& added, int64_t past, int64_t context) {
  if (!cached.defined() || cached.size(0) != added.size(0)) {
    cached = at::empty({added.size(0), added.size(1), context, added.size(3)}, added.options());
  }
  cached.narrow(2, past, added.size(2)).copy_(added);
  return cached.narrow(2, 0, past + added.size(2));
}

/// Makes the mask (T, past + T) of what each new position sees; nothing where it sees all.
std::optional<at::Tensor> cache_mask(int64_t length, int64_t past, const at::Device& device) {
  if (length == 1) return std::nullopt;
  return at::ones({length, past + length}, at::TensorOptions().dtype(at::kBool).device(device)).tril(past);
}

/// Returns the layer's product with its bias in it; torch::nn::Linear adds that in a pass of its own.
at::Tensor with_bias(const torch::nn::Linear& layer, const at::Tensor& x) {
  return at::linear(x, layer->weight, layer->bias);
}

/// Returns the norm of the stream, and the stream in one tensor.
std::pair<at::Tensor, at::Tensor> norm_of(ops::LayerNorm& norm, const ResidualStream& x) {
  if (x.branch.defined()) return norm->add_and_norm(x.branch, x.sum);
  return {norm->forward(x.sum), x.sum};
}

}  // namespace

void validate(const GptConfig& config) {
  const auto positive = [](const char* name, int64_t value) {
    if (value < 1) deepspeed::raise<deepspeed::UsageError>(name, " is ", value, ", expected at least 1");
  };
  positive("vocabulary", config.vocabulary);
  positive("context", config.context);
  positive("layers", config.layers);
  positive("heads", config.heads);
  positive("width", config.width);
  if (config.width % config.heads != 0) {
    deepspeed::raise<deepspeed::UsageError>("width is ", config.width, ", expected a multiple of heads (",
                                            config.heads, ")");
  }
  if (!(config.dropout >= 0.0 && config.dropout < 1.0)) {
    deepspeed::raise<deepspeed::UsageError>("dropout is ", config.dropout,
                                            ", expected at least 0 and less than 1");
  }
  if (config.inner < 0)
    deepspeed::raise<deepspeed::UsageError>("inner is ", config.inner, ", expected at least 0");
}

CausalSelfAttention::CausalSelfAttention(const GptConfig& config)
    : heads_(config.heads),
      context_(config.context),
      dropout_(config.dropout),
      c_attn_(register_module("c_attn", torch::nn::Linear(config.width, 3 * config.width))),
      c_proj_(register_module("c_proj", torch::nn::Linear(config.width, config.width))) {}

at::Tensor CausalSelfAttention::forward(const at::Tensor& x, LayerCache* cache, int64_t past) {
  const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
  // Views, no copies: the attention kernels take heads that lie interleaved in memory.
  const auto qkv =
      with_bias(c_attn_, x).view({batch, length, 3, heads_, width / heads_}).unbind(2);  // (B, T, H, D)
  auto keys = qkv[1].transpose(1, 2), values = qkv[2].transpose(1, 2);
  std::optional<at::Tensor> mask;
  if (cache != nullptr) {
    keys = append(cache->keys, keys, past, context_);
    values = append(cache->values, values, past, context_);
    mask = cache_mask(length, past, x.device());
  }
  const auto mixed =
      at::scaled_dot_product_attention(qkv[0].transpose(1, 2), keys, values, mask,
                                       is_training() ? dropout_ : 0.0, /*is_causal=*/cache == nullptr);
  return with_bias(c_proj_, mixed.transpose(1, 2).reshape({batch, length, width}));  // (B, T, C)
}

Mlp::Mlp(const GptConfig& config)
    : c_fc_(register_module("c_fc", torch::nn::Linear(config.width, config.inner_width()))),
      c_proj_(register_module("c_proj", torch::nn::Linear(config.inner_width(), config.width))) {}

at::Tensor Mlp::forward(const at::Tensor& x) {
  return with_bias(c_proj_, ops::bias_gelu(at::linear(x, c_fc_->weight), c_fc_->bias));
}

Block::Block(const GptConfig& config)
    : dropout_(config.dropout),
      ln_1_(register_module("ln_1", ops::LayerNorm(config.width, config.norm_eps))),
      attn_(register_module("attn", std::make_shared<CausalSelfAttention>(config))),
      ln_2_(register_module("ln_2", ops::LayerNorm(config.width, config.norm_eps))),
      mlp_(register_module("mlp", std::make_shared<Mlp>(config))) {}

ResidualStream Block::forward(const ResidualStream& x, LayerCache* cache, int64_t past) {
  const auto drop = [&](const at::Tensor& y) { return ops::dropout(y, dropout_, is_training()); };
  const auto [input, before] = norm_of(ln_1_, x);
  const auto [normed, sum] = ln_2_->add_and_norm(drop(attn_->forward(input, cache, past)), before);
  return {sum, drop(mlp_->forward(normed))};
}

at::Tensor Block::forward(const at::Tensor& x) {
  const auto [sum, branch] = forward(ResidualStream{x, {}});
  return sum + branch;
}

GPT::GPT(const GptConfig& config)
    : config_((validate(config), config)),
      wte_(register_module("wte", ops::Embedding(config.vocabulary, config.width))),
      wpe_(register_module("wpe", torch::nn::Embedding(config.context, config.width))),
      ln_f_(nullptr) {
  auto list = register_module("h", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.layers; ++i) {
    blocks_.push_back(std::make_shared<Block>(config));
    list->push_back(blocks_.back());
  }
  ln_f_ = register_module("ln_f", ops::LayerNorm(config.width, config.norm_eps));
  initialize_weights(*this, config_);
}

void initialize_weights(torch::nn::Module& module, const GptConfig& config) {
  // Every block adds twice to the residual stream; its share shrinks so that the sum keeps its size at any
  // depth.
  const double residual_deviation = kInitialDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  for (auto& item : module.named_parameters()) {
    const std::string& name = item.key();
    if (name.ends_with(".bias")) {
      torch::nn::init::zeros_(item.value());
    } else if (name.find("ln_") != std::string::npos) {
      torch::nn::init::ones_(item.value());
    } else {
      torch::nn::init::normal_(item.value(), 0.0,
                               name.ends_with("c_proj.weight") ? residual_deviation : kInitialDeviation);
    }
  }
}

at::Tensor GPT::hidden(const at::Tensor& tokens, KeyValueCache* cache) {
  const int64_t past = cache == nullptr ? 0 : cache->length;
  if (tokens.dim() != 2 || tokens.size(1) < 1 || past + tokens.size(1) > config_.context) {
    deepspeed::raise<deepspeed::UsageError>("tokens have the shape ", c10::str(tokens.sizes()), " behind ",
                                            past, " in the cache, expected (batch, 1 to ",
                                            config_.context - past, ")");
  }
  if (cache != nullptr) cache->layers.resize(blocks_.size());
  const auto positions = at::arange(past, past + tokens.size(1), tokens.options());  // (T)
  const auto embedded = wte_->forward(tokens) + wpe_->forward(positions);            // (B, T, C)
  ResidualStream x = {ops::dropout(embedded, config_.dropout, is_training()), {}};
  for (size_t layer = 0; layer < blocks_.size(); ++layer)
    x = blocks_[layer]->forward(x, cache == nullptr ? nullptr : &cache->layers[layer], past);
  if (cache != nullptr) cache->length = past + tokens.size(1);
  return norm_of(ln_f_, x).first;
}

at::Tensor GPT::logits(const at::Tensor& tokens, KeyValueCache* cache) {
  std::optional<c10::NoGradGuard> no_grad;
  if (cache != nullptr) no_grad.emplace();  // the cache is written in place
  return at::linear(hidden(tokens, cache), wte_->weight);
}

at::Tensor GPT::forward(const at::Tensor& tokens, const at::Tensor& targets) {
  return ops::linear_cross_entropy(hidden(tokens, nullptr), wte_->weight, targets);
}

}  // namespace gpt2
