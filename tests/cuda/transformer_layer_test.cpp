// The transformer layer on a CUDA device, forward and backward: against the CPU's, with what its options
// compute again, and by each of torch's fused attentions.
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include "deepspeed/base/message.h"
#include "deepspeed/ops/transformer/layer_function.h"

#include "tests/cuda/require_cuda.h"

namespace deepspeed::ops {
namespace {

using CudaTransformerLayer = testing::CudaTest;
using Tensors = std::vector<at::Tensor>;

DeepSpeedTransformerConfig config_of(bool pre_layer_norm, double dropout_ratio) {
  DeepSpeedTransformerConfig config;
  config.hidden_size = 24;
  config.intermediate_size = 70;
  config.heads = 3;
  config.attn_dropout_ratio = config.hidden_dropout_ratio = dropout_ratio;
  config.pre_layer_norm = pre_layer_norm;
  return config.checked();
}

/// The states, the mask and the weights in the order of kTransformerWeights, in fp64.
Tensors inputs_of(const DeepSpeedTransformerConfig& config) {
  at::manual_seed(5);
  const int64_t hidden = config.hidden_size, inter = config.intermediate_size;
  const auto matrix = [](int64_t out, int64_t in) {
    return at::randn({out, in}, at::kDouble) / std::sqrt(static_cast<double>(in));
  };
  const auto vector = [](int64_t size) { return 0.3 * at::randn({size}, at::kDouble); };
  const auto norm = [&] { return 0.5 + at::rand({hidden}, at::kDouble); };
  at::Tensor mask = at::zeros({2, 1, 1, 7}, at::kDouble);
  mask.narrow(0, 1, 1).narrow(3, 4, 3).fill_(-10000);
  return {at::randn({2, 7, hidden}, at::kDouble),
          mask,
          matrix(3 * hidden, hidden),
          vector(3 * hidden),
          matrix(hidden, hidden),
          vector(hidden),
          norm(),
          vector(hidden),
          matrix(inter, hidden),
          vector(inter),
          matrix(hidden, inter),
          vector(hidden),
          norm(),
          vector(hidden)};
}

/// Returns the output and the gradients of the states and the weights, on the CPU in fp64. `moves` is added
/// to attn_qkvw.
Tensors run_on(const at::Device& device, at::ScalarType dtype, const DeepSpeedTransformerConfig& config,
               bool has_mask = true, const at::Tensor& moves = {}) {
  Tensors learned;
  at::Tensor mask;
  Tensors given = inputs_of(config);
  if (moves.defined()) given[2] = given[2] + moves;
  for (size_t i = 0; i < given.size(); ++i) {
    const at::Tensor moved = given[i].to(dtype).to(device);
    if (i != 1) {
      learned.push_back(moved.detach().set_requires_grad(true));
    } else if (has_mask) {
      mask = moved;
    }
  }
  TransformerWeights weights;
  for (size_t i = 0; i < kTransformerWeights.size(); ++i) {
    weights.*kTransformerWeights[i].member = learned[1 + i];
  }
  at::manual_seed(6);
  const at::Tensor output = transformer_layer(learned[0], mask, weights, config, /*is_training=*/true);
  const at::Tensor gradient = at::linspace(-1, 1, output.numel()).view(output.sizes());
  Tensors results = torch::autograd::grad({output}, learned, {gradient.to(dtype).to(device)});
  results.push_back(output.detach());
  for (at::Tensor& result : results) result = result.cpu().to(at::kDouble);
  return results;
}

void expect_near_results(const Tensors& seen, const Tensors& expected, at::ScalarType dtype,
                         const std::string& what) {
  // The CPU's attention without dropout sums in another order.
  const double tolerance = dtype == at::kDouble ? 1e-9 : dtype == at::kFloat ? 1e-4 : 0.06;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double size = expected[i].square().mean().sqrt().item<double>();
    EXPECT_LE((seen[i] - expected[i]).abs().max().item<double>(),
              tolerance * (size + expected[i].abs().max().item<double>()))
        << "result " << i << " in " << dtype << what;
  }
}

/// One of torch's fused attentions, by the middle of its operators' names; "" stands for none of them.
struct FusedAttention {
  std::string name;
  bool takes_mask, takes_fp32;
};
const std::vector<FusedAttention> kFusedAttentions = {
    {"flash", false, false}, {"efficient", true, true}, {"cudnn", true, false}};

/// Lets torch choose one fused attention alone while it lives.
class OnlyAttention {
 public:
  explicit OnlyAttention(const std::string& name) { allow(name, false); }
  ~OnlyAttention() { allow("", true); }
  OnlyAttention(const OnlyAttention&) = delete;
  OnlyAttention& operator=(const OnlyAttention&) = delete;

 private:
  static void allow(const std::string& name, bool all) {
    at::globalContext().setSDPUseFlash(all || name == "flash");
    at::globalContext().setSDPUseMemEfficient(all || name == "efficient");
    at::globalContext().setSDPUseCuDNN(all || name == "cudnn");
  }
};

/// Counts calls of operators by their names while it lives, on all threads.
class OperatorCounts {
 public:
  OperatorCounts() {
    of_names().clear();
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&count));
  }
  ~OperatorCounts() { at::removeCallback(handle_); }
  OperatorCounts(const OperatorCounts&) = delete;
  OperatorCounts& operator=(const OperatorCounts&) = delete;

  static int of(const std::string& name) {
    const std::lock_guard lock(mutex());
    const auto found = of_names().find("aten::" + name);
    return found == of_names().end() ? 0 : found->second;
  }
  static int of_attention(const std::string& name, const std::string& end) {
    return of("_scaled_dot_product_" + name + "_attention" + end);
  }

 private:
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
    const std::lock_guard lock(mutex());
    ++of_names()[function.name()];
    return nullptr;
  }
  static std::map<std::string, int>& of_names() {
    static std::map<std::string, int> counts;
    return counts;
  }
  static std::mutex& mutex() {
    static std::mutex made;
    return made;
  }
  at::CallbackHandle handle_{};
};

/// Says whether a fused attention ran, forward and backward. cuDNN may be absent, or of an age that torch
/// does not choose.
bool ran(const FusedAttention& attention) {
  const int forwards = OperatorCounts::of_attention(attention.name, "");
  EXPECT_EQ(OperatorCounts::of_attention(attention.name, "_backward"), forwards) << attention.name;
  EXPECT_TRUE(forwards == 1 || (forwards == 0 && attention.name == "cudnn"))
      << attention.name << " " << forwards;
  return forwards == 1;
}

TEST_F(CudaTransformerLayer, GivesTheResultsOfTheCpu) {
  for (const bool pre : {true, false}) {
    for (const bool inverts : {true, false}) {
      for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
        DeepSpeedTransformerConfig config = config_of(pre, 0);
        config.normalize_invertible = inverts;
        const Tensors expected = run_on(at::kCPU, dtype, config), seen = run_on(at::kCUDA, dtype, config);
        expect_near_results(seen, expected, dtype,
                            message(pre ? " pre" : " post", inverts ? " inverted" : ""));
      }
    }
  }
}

TEST_F(CudaTransformerLayer, GivesTheResultsOfTheCpuByEachFusedAttention) {
  const DeepSpeedTransformerConfig config = config_of(true, 0);
  for (const FusedAttention& attention : kFusedAttentions) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const bool has_mask : {false, true}) {
        const Tensors expected = run_on(at::kCPU, dtype, config, has_mask);
        const OnlyAttention only(attention.name);
        const OperatorCounts counts;
        expect_near_results(run_on(at::kCUDA, dtype, config, has_mask), expected, dtype,
                            message(" by ", attention.name, has_mask ? " with a mask" : ""));
        const bool fits =
            (attention.takes_mask || !has_mask) && (attention.takes_fp32 || dtype != at::kFloat);
        if (fits) {
          ran(attention);
        } else {
          EXPECT_EQ(OperatorCounts::of_attention(attention.name, ""), 0) << attention.name << " " << dtype;
        }
      }
    }
  }
}

// The gradient of attn_qkvw says by how much the result changes along it, if backward drops what forward
// dropped.
TEST_F(CudaTransformerLayer, DropsInBackwardWhatTheFusedAttentionDropped) {
  DeepSpeedTransformerConfig config = config_of(true, 0);
  config.attn_dropout_ratio = 0.5;
  for (const FusedAttention& attention : kFusedAttentions) {
    const auto dtype = attention.takes_fp32 ? at::kFloat : at::kHalf;
    const OnlyAttention only(attention.name);
    const OperatorCounts counts;
    const Tensors first = run_on(at::kCUDA, dtype, config, attention.takes_mask);
    if (!ran(attention)) continue;
    const Tensors again = run_on(at::kCUDA, dtype, config, attention.takes_mask);
    EXPECT_TRUE(again.back().equal(first.back())) << attention.name;
    const at::Tensor& gradient = first[1];
    const at::Tensor step = gradient * (0.1 / gradient.norm());
    const auto result_at = [&](const at::Tensor& moves) {
      const at::Tensor output = run_on(at::kCUDA, dtype, config, attention.takes_mask, moves).back();
      return (output * at::linspace(-1, 1, output.numel(), at::kDouble).view(output.sizes()))
          .sum()
          .item<double>();
    };
    const at::Tensor weight = inputs_of(config)[2];
    const auto rounded = [&](const at::Tensor& moves) { return (weight + moves).to(dtype).to(at::kDouble); };
    const double expected = (gradient * (rounded(step) - rounded(-step))).sum().item<double>();
    EXPECT_NEAR(result_at(step) - result_at(-step), expected, 0.1 * expected) << attention.name;
    DeepSpeedTransformerConfig plain = config;
    plain.attn_dropout_ratio = 0;
    EXPECT_FALSE(run_on(at::kCUDA, dtype, plain, attention.takes_mask).back().equal(first.back()))
        << "nothing was dropped";
  }
}

TEST_F(CudaTransformerLayer, WritesOutWhatNoFusedAttentionTakes) {
  DeepSpeedTransformerConfig seeded = config_of(true, 0.2);
  seeded.seed = 3;
  DeepSpeedTransformerConfig narrow = config_of(true, 0);
  narrow.heads = 6;  // of 4 elements
  const OperatorCounts counts;
  run_on(at::kCUDA, at::kHalf, seeded);
  run_on(at::kCUDA, at::kHalf, narrow);
  run_on(at::kCUDA, at::kDouble, config_of(true, 0));
  for (const FusedAttention& attention : kFusedAttentions)
    EXPECT_EQ(OperatorCounts::of_attention(attention.name, ""), 0) << attention.name;
}

TEST_F(CudaTransformerLayer, HasEqualBitsWithWhatBackwardComputesAgain) {
  for (const bool pre : {true, false}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      DeepSpeedTransformerConfig plain = config_of(pre, 0.2);
      plain.seed = 7;  // which torch's attentions, whose sums have no fixed order, do not take
      const Tensors expected = run_on(at::kCUDA, dtype, plain);
      DeepSpeedTransformerConfig saving = plain;
      saving.gelu_checkpoint = saving.attn_dropout_checkpoint = true;
      const Tensors seen = run_on(at::kCUDA, dtype, saving);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(seen[i].equal(expected[i])) << "result " << i;
      EXPECT_FALSE(run_on(at::kCUDA, dtype, config_of(pre, 0)).back().equal(expected.back()))
          << "nothing was dropped";
    }
  }
}

}  // namespace
}  // namespace deepspeed::ops
