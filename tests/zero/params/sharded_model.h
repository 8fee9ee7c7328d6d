// Models with partitioned parameters, for the tests of stage 3.
#pragma once

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/ops/gelu.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/zero/params/shard_store.h"

namespace deepspeed::testing {

inline std::vector<NamedTensor> named_parameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> params;
  std::unordered_set<const at::TensorImpl*> seen;  // tied parameters are listed twice
  for (const auto& entry : module.named_parameters()) {
    if (seen.insert(entry.value().unsafeGetTensorImpl()).second)
      params.push_back({entry.key(), entry.value()});
  }
  return params;
}

/// Returns options under which no parameter is small enough to stay whole.
inline zero::ShardStore::Options nothing_persistent(int64_t max_live_numel = 1'000'000'000) {
  zero::ShardStore::Options options;
  options.pool.keys.stage3_param_persistence_threshold = 0;
  options.pool.keys.stage3_max_live_parameters = max_live_numel;
  return options;
}

inline zero::ShardStore shard(const torch::nn::Module& module, const comm::ProcessGroup& group,
                              const zero::ShardStore::Options& options = nothing_persistent()) {
  return zero::ShardStore({named_parameters(module)}, {}, zero::ZeroGroups(group), options);
}

/// Alternates Linear and LayerNorm layers, with GELU.
class Mlp : public torch::nn::Module {
 public:
  Mlp(int64_t width, int64_t layers) {
    for (int64_t i = 0; i < layers; ++i) {
      const std::string name = std::to_string(i);
      linears_.push_back(register_module("linear" + name, torch::nn::Linear(width, width)));
      norms_.push_back(
          register_module("norm" + name, torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}))));
    }
  }

  at::Tensor forward(at::Tensor x) {  // (B, width) -> a scalar
    for (size_t i = 0; i < linears_.size(); ++i) x = at::gelu(norms_[i]->forward(linears_[i]->forward(x)));
    return x.pow(2).sum();
  }

  torch::nn::Linear& linear(size_t index) { return linears_[index]; }

 private:
  std::vector<torch::nn::Linear> linears_;
  std::vector<torch::nn::LayerNorm> norms_;
};

}  // namespace deepspeed::testing
