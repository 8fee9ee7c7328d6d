// A compact GPT for tests: pre-LN blocks, learned positions, the head tied to the token embedding. Names,
// order and arithmetic are those of tests/golden/deepspeed_training/gpt.py.
#pragma once

#include <cstdint>
#include <memory>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

namespace deepspeed::testing {

struct TinyGPTConfig {
  int64_t vocabulary = 48;
  int64_t context = 11;
  int64_t width = 14;
  int64_t layers = 2;
  int64_t heads = 2;
  double dropout = 0.0;  // after the embedding and at the end of each residual branch, in training mode
};

class TinyGPTBlock;

class TinyGPT : public torch::nn::Module {
 public:
  explicit TinyGPT(const TinyGPTConfig& config);

  /// tokens, targets: (B, T) int64 -> mean cross entropy, a scalar.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets);

  const TinyGPTConfig& config() const { return config_; }

 private:
  TinyGPTConfig config_;
  torch::nn::Embedding wte_;
  torch::nn::Embedding wpe_;
  torch::nn::ModuleList h_;
  torch::nn::LayerNorm ln_f_{nullptr};
};

}  // namespace deepspeed::testing
