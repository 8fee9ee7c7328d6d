#include "tests/support/tiny_gpt.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

namespace deepspeed::testing {

namespace {

torch::nn::LayerNorm make_layer_norm(int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(1e-5));
}

class Attention : public torch::nn::Module {
 public:
  explicit Attention(const TinyGPTConfig& config)
      : heads_(config.heads),
        c_attn_(register_module("c_attn", torch::nn::Linear(config.width, 3 * config.width))),
        c_proj_(register_module("c_proj", torch::nn::Linear(config.width, config.width))) {}

  at::Tensor forward(const at::Tensor& x) {  // (B, T, C)
    const int64_t batch = x.size(0), time = x.size(1), width = x.size(2);
    const std::vector<at::Tensor> parts = c_attn_->forward(x).split(width, 2);
    auto split_heads = [&](const at::Tensor& part) {  // (B, heads, T, C / heads)
      return part.view({batch, time, heads_, width / heads_}).transpose(1, 2);
    };
    at::Tensor y = at::scaled_dot_product_attention(split_heads(parts[0]), split_heads(parts[1]),
                                                    split_heads(parts[2]), {}, 0.0, true);
    return c_proj_->forward(y.transpose(1, 2).reshape({batch, time, width}));
  }

 private:
  int64_t heads_;
  torch::nn::Linear c_attn_;  // rows: query, key, value
  torch::nn::Linear c_proj_;
};

class MLP : public torch::nn::Module {
 public:
  explicit MLP(int64_t width)
      : c_fc_(register_module("c_fc", torch::nn::Linear(width, 4 * width))),
        c_proj_(register_module("c_proj", torch::nn::Linear(4 * width, width))) {}

  at::Tensor forward(const at::Tensor& x) { return c_proj_->forward(at::gelu(c_fc_->forward(x), "tanh")); }

 private:
  torch::nn::Linear c_fc_;
  torch::nn::Linear c_proj_;
};

}  // namespace

class TinyGPTBlock : public torch::nn::Module {
 public:
  explicit TinyGPTBlock(const TinyGPTConfig& config)
      : dropout_(config.dropout),
        ln_1_(register_module("ln_1", make_layer_norm(config.width))),
        attn_(register_module("attn", std::make_shared<Attention>(config))),
        ln_2_(register_module("ln_2", make_layer_norm(config.width))),
        mlp_(register_module("mlp", std::make_shared<MLP>(config.width))) {}

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = input + drop(attn_->forward(ln_1_->forward(input)));
    return x + drop(mlp_->forward(ln_2_->forward(x)));
  }

 private:
  at::Tensor drop(const at::Tensor& x) const {
    return dropout_ > 0.0 ? at::dropout(x, dropout_, is_training()) : x;
  }

  double dropout_;
  torch::nn::LayerNorm ln_1_;
  std::shared_ptr<Attention> attn_;
  torch::nn::LayerNorm ln_2_;
  std::shared_ptr<MLP> mlp_;
};

TinyGPT::TinyGPT(const TinyGPTConfig& config)
    : config_(config),
      wte_(register_module("wte", torch::nn::Embedding(config.vocabulary, config.width))),
      wpe_(register_module("wpe", torch::nn::Embedding(config.context, config.width))),
      h_(register_module("h", torch::nn::ModuleList())) {
  for (int64_t i = 0; i < config.layers; ++i) {
    h_->push_back(std::make_shared<TinyGPTBlock>(config));
  }
  ln_f_ = register_module("ln_f", make_layer_norm(config.width));
}

at::Tensor TinyGPT::forward(const at::Tensor& tokens, const at::Tensor& targets) {
  const at::Tensor positions = at::arange(tokens.size(1), tokens.options());
  at::Tensor x = wte_->forward(tokens) + wpe_->forward(positions);
  if (config_.dropout > 0.0) {
    x = at::dropout(x, config_.dropout, is_training());
  }
  for (const auto& block : *h_) {
    x = block->as<TinyGPTBlock>()->forward(x);
  }
  const at::Tensor logits = at::linear(ln_f_->forward(x), wte_->weight);
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}).to(at::kFloat), targets.reshape({-1}));
}

}  // namespace deepspeed::testing
