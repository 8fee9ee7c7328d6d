#include "bert.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/container/modulelist.h>

#include "deepspeed/base/error.h"

namespace bert {
namespace ops = deepspeed::ops;

namespace {

std::shared_ptr<torch::nn::Module> add_group(torch::nn::Module& parent, const char* name) {
  return parent.register_module(name, std::make_shared<torch::nn::Module>());
}

void check_beside(const char* name, const at::Tensor& tensor, const at::Tensor& tokens) {
  if (!tensor.defined() || tensor.sizes() == tokens.sizes()) return;
  deepspeed::raise<deepspeed::UsageError>(name, " has the shape ", tensor.sizes(),
                                          ", expected that of the tokens, ", tokens.sizes());
}

}  // namespace

Bert::Bert(const BertConfig& config) : config_(config) {
  const int64_t width = config.layer.hidden_size;
  const double eps = config.layer.layer_norm_eps;
  const auto bert = add_group(*this, "bert");
  const auto embeddings = add_group(*bert, "embeddings");
  word_embeddings_ = embeddings->register_module(
      "word_embeddings", ops::Embedding(config.vocab_size, width, config.pad_token_id));
  position_embeddings_ = embeddings->register_module("position_embeddings",
                                                     ops::Embedding(config.max_position_embeddings, width));
  token_type_embeddings_ =
      embeddings->register_module("token_type_embeddings", ops::Embedding(config.type_vocab_size, width));
  embeddings_norm_ = embeddings->register_module("LayerNorm", ops::LayerNorm(width, eps));
  auto list = add_group(*bert, "encoder")->register_module("layer", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.layer.num_hidden_layers; ++i) {
    layers_.push_back(std::make_shared<deepspeed::DeepSpeedTransformerLayer>(config.layer));
    list->push_back(layers_.back());
  }
  const auto predictions = add_group(*add_group(*this, "cls"), "predictions");
  const auto transform = add_group(*predictions, "transform");
  dense_ = transform->register_module("dense", torch::nn::Linear(width, width));
  head_norm_ = transform->register_module("LayerNorm", ops::LayerNorm(width, eps));
  if (!config.tie_word_embeddings) {
    decoder_ = predictions->register_module(
        "decoder", torch::nn::Linear(torch::nn::LinearOptions(width, config.vocab_size).bias(false)));
  }
  bias_ = predictions->register_parameter("bias", at::zeros({config.vocab_size}));

  const at::NoGradGuard no_grad;
  for (auto& item : named_parameters()) {
    if (item.value().dim() == 2) item.value().normal_(0.0, config.layer.initializer_range);
  }
  dense_->bias.zero_();
  if (config.pad_token_id) word_embeddings_->weight.select(0, *config.pad_token_id).zero_();
}

at::Tensor Bert::hidden(const at::Tensor& tokens, const BertInputs& inputs) {
  if (tokens.dim() != 2 || tokens.size(1) < 1 || tokens.size(1) > config_.max_position_embeddings) {
    deepspeed::raise<deepspeed::UsageError>("tokens have the shape ", tokens.sizes(),
                                            ", expected (batch, 1 to ", config_.max_position_embeddings, ")");
  }
  check_beside("attention_mask", inputs.attention_mask, tokens);
  check_beside("token_type_ids", inputs.token_type_ids, tokens);
  const auto types = inputs.token_type_ids.defined() ? inputs.token_type_ids : at::zeros_like(tokens);
  const auto places = token_type_embeddings_->forward(types) +
                      position_embeddings_->forward(at::arange(tokens.size(1), tokens.options()));
  auto states = embeddings_norm_->add_and_norm(word_embeddings_->forward(tokens), places).first;
  states = ops::dropout(states, config_.layer.hidden_dropout_ratio, is_training());
  at::Tensor mask;
  if (inputs.attention_mask.defined()) mask = inputs.attention_mask.ne(0).unsqueeze(1).unsqueeze(1);
  for (const auto& layer : layers_) states = layer->forward(states, mask);
  return states;
}

at::Tensor Bert::transformed(const at::Tensor& states) {
  return head_norm_->forward(ops::bias_gelu(at::linear(states, dense_->weight), dense_->bias));
}

at::Tensor Bert::logits(const at::Tensor& tokens, const BertInputs& inputs) {
  return at::linear(transformed(hidden(tokens, inputs)), decoder(), bias_);
}

at::Tensor Bert::forward(const at::Tensor& tokens, const at::Tensor& targets) {
  // Only tokens that are to be foretold go through the head: about one in seven.
  const auto chosen = targets.flatten().ne(kIgnored).nonzero().squeeze(1);
  const auto states = hidden(tokens, {}).flatten(0, 1).index_select(0, chosen);
  return ops::linear_cross_entropy(transformed(states), decoder(), targets.flatten().index_select(0, chosen),
                                   bias_);
}

}  // namespace bert
