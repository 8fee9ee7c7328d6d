// Low-rank adapters (Hu et al., arXiv 2106.09685): a frozen linear layer plus a small trained product.
#pragma once

#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace lora {

/// y = base(x) + (alpha / rank) * x A^T B^T. The base is frozen; B begins with zeros, so that training starts
/// from the base itself.
class LoraLinearImpl : public torch::nn::Module {
 public:
  LoraLinearImpl(int64_t in_features, int64_t out_features, int64_t rank, double alpha);

  at::Tensor forward(const at::Tensor& x);  // (..., in) -> (..., out)

 private:
  torch::nn::Linear base_{nullptr};
  at::Tensor lora_a_;  // (rank, in)
  at::Tensor lora_b_;  // (out, rank)
  double scale_;
};
TORCH_MODULE(LoraLinear);

/// Two such layers with a GELU between them.
class Network : public torch::nn::Module {
 public:
  explicit Network(int64_t rank);

  at::Tensor forward(const at::Tensor& x);  // (N, 16) -> (N, 4)

 private:
  LoraLinear hidden_{nullptr};  // 16 -> 32
  LoraLinear out_{nullptr};     // 32 -> 4
};

}  // namespace lora
