// The model of tests/golden/deepspeed_checkpoints: a layer that may be frozen, a head that may be tied, a
// parameter of one element, two buffers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/assembly/build.h"

namespace deepspeed::testing {

// A head whose weight may be another module's.
class TiedHead : public torch::nn::Module {
 public:
  explicit TiedHead(const at::Tensor& weight) : weight_(register_parameter("weight", weight)) {}
  at::Tensor forward(const at::Tensor& x) { return torch::linear(x, weight_); }

 private:
  at::Tensor weight_;
};

/// What is special in the model or in the optimizer's groups: the variants of small_training.py there.
struct SmallNetVariant {
  bool frozen = true;
  bool tied = true;
  bool groups = false;

  /// Throws UsageError for another name than golden, plain, frozen, shared and groups.
  static SmallNetVariant named(const std::string& name) {
    if (name == "golden") return {};
    if (name == "plain") return {false, false, false};
    if (name == "frozen") return {true, false, false};
    if (name == "shared") return {false, true, false};
    if (name == "groups") return {false, false, true};
    raise<UsageError>("there is no variant '", name, "'");
  }
};

class SmallNet : public torch::nn::Module {
 public:
  SmallNet(int64_t vocabulary, int64_t width, const SmallNetVariant& variant = {}) {
    gain_ = register_parameter("gain", torch::zeros({1}));
    embed_ = register_module("embed", torch::nn::Embedding(vocabulary, width));
    frozen_ = register_module("frozen", torch::nn::Linear(width, width));
    hidden_ = register_module("hidden", torch::nn::Linear(width, width));
    const at::Tensor own = variant.tied ? embed_->weight : torch::zeros({vocabulary, width});
    head_ = register_module("head", std::make_shared<TiedHead>(own));
    scale_ = register_buffer("scale", torch::linspace(0.5, 1.5, width));
    calls_ = register_buffer("calls", torch::zeros({}, torch::kLong));
    for (auto& param : frozen_->parameters()) param.requires_grad_(!variant.frozen);
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

/// For initialize(): nothing, or two groups: matrices, and the rest without weight decay and with betas of
/// their own.
inline std::vector<ModelParameters> small_net_groups(const SmallNet& model, const SmallNetVariant& variant) {
  if (!variant.groups) return {};
  std::vector<ModelParameters> groups(2);
  groups[1].options = {{"weight_decay", 0.0}, {"betas", {0.8, 0.9}}};
  for (const at::Tensor& parameter : model.parameters()) {
    if (parameter.requires_grad()) groups[parameter.dim() > 1 ? 0 : 1].params.push_back(parameter);
  }
  return groups;
}

}  // namespace deepspeed::testing
