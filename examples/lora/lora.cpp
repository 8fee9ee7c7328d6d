#include "lora.h"

#include <cmath>

#include <ATen/ops/gelu.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/functional/linear.h>

namespace lora {

LoraLinearImpl::LoraLinearImpl(int64_t in_features, int64_t out_features, int64_t rank, double alpha)
    : scale_(alpha / static_cast<double>(rank)) {
  base_ = register_module("base", torch::nn::Linear(in_features, out_features));
  for (at::Tensor& parameter : base_->parameters()) parameter.set_requires_grad(false);
  lora_a_ = register_parameter("lora_a", at::randn({rank, in_features}) / std::sqrt(double(in_features)));
  lora_b_ = register_parameter("lora_b", at::zeros({out_features, rank}));
}

at::Tensor LoraLinearImpl::forward(const at::Tensor& x) {
  return base_->forward(x) + scale_ * at::linear(at::linear(x, lora_a_), lora_b_);
}

Network::Network(int64_t rank) {
  hidden_ = register_module("hidden", LoraLinear(16, 32, rank, 8.0));
  out_ = register_module("out", LoraLinear(32, 4, rank, 8.0));
}

at::Tensor Network::forward(const at::Tensor& x) { return out_->forward(at::gelu(hidden_->forward(x))); }

}  // namespace lora
