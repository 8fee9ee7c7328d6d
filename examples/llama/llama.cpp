#include "llama.h"

#include <tuple>

#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/container/modulelist.h>

#include "deepspeed/base/error.h"

namespace llama {
namespace ops = deepspeed::ops;

namespace {

torch::nn::Linear make_linear(int64_t in, int64_t out, bool has_bias) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(has_bias));
}

}  // namespace

Attention::Attention(const LlamaConfig& config)
    : heads_(config.num_attention_heads),
      shared_heads_(config.num_key_value_heads),
      head_dim_(config.head_dim),
      dropout_(config.attention_dropout),
      q_proj_(make_linear(config.hidden_size, heads_ * head_dim_, config.attention_bias)),
      k_proj_(make_linear(config.hidden_size, shared_heads_ * head_dim_, config.attention_bias)),
      v_proj_(make_linear(config.hidden_size, shared_heads_ * head_dim_, config.attention_bias)),
      o_proj_(make_linear(heads_ * head_dim_, config.hidden_size, config.attention_bias)) {
  register_module("q_proj", q_proj_);
  register_module("k_proj", k_proj_);
  register_module("v_proj", v_proj_);
  register_module("o_proj", o_proj_);
}

at::Tensor Attention::forward(const at::Tensor& x, const ops::RotaryTables& tables) {
  const int64_t batch = x.size(0), length = x.size(1);
  const auto by_heads = [&](const at::Tensor& y, int64_t heads) {
    return y.view({batch, length, heads, head_dim_}).transpose(1, 2);  // (B, H, T, D)
  };
  const auto turned = [&](const at::Tensor& y) { return ops::rotary_embedding(y, tables.cos, tables.sin); };
  const at::Tensor queries = turned(by_heads(q_proj_->forward(x), heads_));
  const at::Tensor keys = turned(by_heads(k_proj_->forward(x), shared_heads_));
  const at::Tensor values = by_heads(v_proj_->forward(x), shared_heads_);
  const at::Tensor mixed = at::scaled_dot_product_attention(
      queries, keys, values, {}, is_training() ? dropout_ : 0.0, /*is_causal=*/true, std::nullopt,
      /*enable_gqa=*/heads_ != shared_heads_);
  return o_proj_->forward(mixed.transpose(1, 2).reshape({batch, length, heads_ * head_dim_}));
}

Mlp::Mlp(const LlamaConfig& config)
    : gate_proj_(make_linear(config.hidden_size, config.intermediate_size, config.mlp_bias)),
      up_proj_(make_linear(config.hidden_size, config.intermediate_size, config.mlp_bias)),
      down_proj_(make_linear(config.intermediate_size, config.hidden_size, config.mlp_bias)) {
  register_module("gate_proj", gate_proj_);
  register_module("up_proj", up_proj_);
  register_module("down_proj", down_proj_);
}

at::Tensor Mlp::forward(const at::Tensor& x) {
  return down_proj_->forward(ops::swiglu(gate_proj_->forward(x), up_proj_->forward(x)));
}

DecoderLayer::DecoderLayer(const LlamaConfig& config)
    : self_attn_(register_module("self_attn", std::make_shared<Attention>(config))),
      mlp_(register_module("mlp", std::make_shared<Mlp>(config))),
      input_layernorm_(
          register_module("input_layernorm", ops::RMSNorm(config.hidden_size, config.rms_norm_eps))),
      post_attention_layernorm_(register_module("post_attention_layernorm",
                                                ops::RMSNorm(config.hidden_size, config.rms_norm_eps))) {}

std::pair<at::Tensor, at::Tensor> DecoderLayer::forward(const at::Tensor& added, const at::Tensor& stream,
                                                        const ops::RotaryTables& tables) {
  const auto [normed, sum] = added.defined() ? input_layernorm_->add_and_norm(added, stream)
                                             : std::pair(input_layernorm_->forward(stream), stream);
  const auto [middle, longer_sum] =
      post_attention_layernorm_->add_and_norm(self_attn_->forward(normed, tables), sum);
  return {mlp_->forward(middle), longer_sum};
}

Llama::Llama(const LlamaConfig& config) : config_(config) {
  auto model = register_module("model", std::make_shared<torch::nn::Module>());
  embed_tokens_ = model->register_module(
      "embed_tokens", ops::Embedding(config.vocab_size, config.hidden_size, config.pad_token_id));
  auto list = model->register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.push_back(std::make_shared<DecoderLayer>(config));
    list->push_back(layers_.back());
  }
  norm_ = model->register_module("norm", ops::RMSNorm(config.hidden_size, config.rms_norm_eps));
  if (!config.tie_word_embeddings)
    lm_head_ = register_module("lm_head", make_linear(config.hidden_size, config.vocab_size, false));
  const at::NoGradGuard no_grad;
  for (auto& item : named_parameters()) {
    if (item.value().dim() == 2) item.value().normal_(0.0, config.initializer_range);
    if (item.key().ends_with("bias")) item.value().zero_();
  }
  if (config.pad_token_id) embed_tokens_->weight.select(0, *config.pad_token_id).zero_();
}

ops::RotaryTables Llama::tables(int64_t length, const at::Device& device) {
  if (!tables_.cos.defined() || tables_.cos.size(0) < length || tables_.cos.device() != device) {
    const at::NoGradGuard no_grad;
    const auto frequencies = at::tensor(inverse_frequencies(config_), at::kDouble);
    // In double: the angle of a far position would lose its fraction in fp32.
    const auto angles = at::arange(length, at::kDouble).unsqueeze(1) * frequencies;
    tables_ = {angles.cos().to(device, at::kFloat), angles.sin().to(device, at::kFloat)};
  }
  return {tables_.cos.narrow(0, 0, length), tables_.sin.narrow(0, 0, length)};
}

at::Tensor Llama::hidden(const at::Tensor& tokens) {
  if (tokens.dim() != 2 || tokens.size(1) < 1 || tokens.size(1) > config_.max_position_embeddings) {
    deepspeed::raise<deepspeed::UsageError>("tokens have the shape ", tokens.sizes(),
                                            ", expected (batch, 1 to ", config_.max_position_embeddings, ")");
  }
  const ops::RotaryTables turns = tables(tokens.size(1), tokens.device());
  at::Tensor stream = embed_tokens_->forward(tokens), added;
  for (const auto& layer : layers_) std::tie(added, stream) = layer->forward(added, stream, turns);
  return norm_->add_and_norm(added, stream).first;
}

at::Tensor Llama::logits(const at::Tensor& tokens) { return at::linear(hidden(tokens), head()); }

at::Tensor Llama::forward(const at::Tensor& tokens, const at::Tensor& targets) {
  return ops::linear_cross_entropy(hidden(tokens), head(), targets);
}

}  // namespace llama
