// The model of tests/golden/deepspeed_checkpoints: a frozen layer, a tied head, a parameter of one element,
// two buffers.
#pragma once

#include <memory>

#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

namespace deepspeed::testing {

// A head whose weight is another module's.
class TiedHead : public torch::nn::Module {
 public:
  explicit TiedHead(const at::Tensor& weight) : weight_(register_parameter("weight", weight)) {}
  at::Tensor forward(const at::Tensor& x) { return torch::linear(x, weight_); }

 private:
  at::Tensor weight_;
};

class SmallNet : public torch::nn::Module {
 public:
  SmallNet(int64_t vocabulary, int64_t width) {
    gain_ = register_parameter("gain", torch::zeros({1}));
    embed_ = register_module("embed", torch::nn::Embedding(vocabulary, width));
    frozen_ = register_module("frozen", torch::nn::Linear(width, width));
    hidden_ = register_module("hidden", torch::nn::Linear(width, width));
    head_ = register_module("head", std::make_shared<TiedHead>(embed_->weight));
    scale_ = register_buffer("scale", torch::linspace(0.5, 1.5, width));
    calls_ = register_buffer("calls", torch::zeros({}, torch::kLong));
    for (auto& param : frozen_->parameters()) param.requires_grad_(false);
  }

  /// tokens and targets (B, T) -> mean cross entropy.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets) {
    calls_.add_(1);
    at::Tensor x = embed_->forward(tokens);
    x = x + frozen_->forward(x) * scale_.to(x.scalar_type());
    x = x + torch::tanh(hidden_->forward(x)) * (1 + gain_);
    return torch::nn::functional::cross_entropy(head_->forward(x).to(at::kFloat).flatten(0, 1),
                                                targets.flatten());
  }

 private:
  at::Tensor gain_, scale_, calls_;
  torch::nn::Embedding embed_{nullptr};
  torch::nn::Linear frozen_{nullptr}, hidden_{nullptr};
  std::shared_ptr<TiedHead> head_;
};

}  // namespace deepspeed::testing
