// A block of a GPT, for tests of what backward does with it.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

namespace deepspeed::testing {

inline constexpr int64_t kWidth = 16;

/// A block of a GPT: layer norms, linear layers on three dimensions, attention.
struct Block {
  torch::nn::LayerNorm first{torch::nn::LayerNormOptions({kWidth})};
  torch::nn::LayerNorm second{torch::nn::LayerNormOptions({kWidth})};
  torch::nn::Linear qkv{kWidth, 3 * kWidth}, projection{kWidth, kWidth};
  torch::nn::Linear up{kWidth, 4 * kWidth}, down{4 * kWidth, kWidth};

  at::Tensor operator()(at::Tensor x) {
    const int64_t batch = x.size(0), length = x.size(1), heads = 2;
    const auto q = qkv(first(x)).view({batch, length, 3, heads, kWidth / heads}).permute({2, 0, 3, 1, 4});
    const auto attended = at::scaled_dot_product_attention(q[0], q[1], q[2], {}, 0.0, /*is_causal=*/true);
    x = x + projection(attended.transpose(1, 2).reshape({batch, length, kWidth}));
    return x + down(torch::nn::functional::gelu(up(second(x))));
  }
  std::vector<at::Tensor> parameters() {
    std::vector<at::Tensor> all;
    const auto add = [&](const auto& module) {
      for (const auto& param : module->parameters()) all.push_back(param);
    };
    add(first), add(second), add(qkv), add(projection), add(up), add(down);
    return all;
  }
};

}  // namespace deepspeed::testing
