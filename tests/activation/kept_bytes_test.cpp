// The bytes that backward keeps: counted, held to formulas and to the allocator; and saved tensors on the
// host.
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <torch/nn/functional/dropout.h>

#include <gtest/gtest.h>

#include "deepspeed/activation/checkpointing.h"
#include "deepspeed/activation/keep/activation_meter.h"
#include "deepspeed/activation/saved_tensor_offload.h"
#include "deepspeed/base/error.h"

#include "tests/activation/plain_and_checkpointed.h"
#include "tests/autograd/gpt_block.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"

namespace deepspeed::testing {
namespace {

using activation::ActivationMeter;
using activation::CountActivations;
using checkpointing::RegionOptions;
using checkpointing::SelectivePolicy;

constexpr int64_t kLayers = 4, kBatch = 8, kLength = 64;
constexpr int64_t kHidden = kBatch * kLength * kWidth * 4;  // bytes of a layer's input
constexpr int64_t kNorm = 2 * kBatch * kLength * 4;         // mean and deviation of a layer norm
constexpr int64_t kLogSumExp = kBatch * 2 * kLength * 4;    // of two heads of attention

constexpr int64_t kGenerators = 5056;  // the state of the CPU's

/// A chain of blocks, each of them a region where `interval` is 1, two of them where it is 2, and so on.
at::Tensor run_layers(std::vector<Block>& blocks, at::Tensor x, int64_t interval,
                      const RegionOptions& options) {
  for (int64_t begin = 0; begin < kLayers; begin += std::max<int64_t>(interval, 1)) {
    if (interval == 0) {
      x = blocks[begin](x);
      continue;
    }
    x = checkpointing::checkpoint(
        options,
        [&blocks, begin, interval](at::Tensor h) {
          for (int64_t i = begin; i < begin + interval; ++i) h = blocks[i](h);
          return h;
        },
        std::move(x));
  }
  return x;
}

/// What a forward keeps, by the meter, and beside parameters, by the allocator.
struct Kept {
  int64_t metered;
  int64_t allocated;
  int64_t peak;
  int64_t left;  // after backward
};

Kept keep(int64_t interval, const RegionOptions& options = {}) {
  std::vector<Block> blocks(kLayers);
  const AllocationCounter counter;
  const auto meter = std::make_shared<ActivationMeter>();
  const auto x = at::randn({kBatch, kLength, kWidth}).requires_grad_();
  Kept kept{};
  {
    const CountActivations count(meter);
    auto y = run_layers(blocks, x * 1, interval, options);
    kept.metered = meter->kept_bytes();
    kept.allocated = counter.live_bytes() - static_cast<int64_t>(x.nbytes() + y.nbytes());
    torch::autograd::backward({y.sum()}, {});
  }
  kept.peak = meter->peak_bytes();
  kept.left = meter->kept_bytes();
  return kept;
}

void expect_within(int64_t got, int64_t predicted, double share) {
  EXPECT_NEAR(static_cast<double>(got), static_cast<double>(predicted),
              share * static_cast<double>(predicted));
}

TEST(KeptBytes, CountTheInputsOfRegions) {
  for (const int64_t interval : {1, 2, 4}) {
    const Kept kept = keep(interval);
    EXPECT_EQ(kept.metered, kLayers / interval * kHidden) << interval;
    // Beside them the states of the generators of each region.
    expect_within(kept.allocated, kLayers / interval * (kHidden + kGenerators), 0.02);
    EXPECT_EQ(kept.left, 0);
    EXPECT_GE(kept.peak, kept.metered);
  }
}

TEST(KeptBytes, FollowTheFormulaInAPlainForward) {
  // Input and result of the first norm, queries, keys and values, attention's result, the input of the second
  // norm and its result, four times the width before and after GELU.
  const int64_t layer = kHidden * (1 + 1 + 3 + 1 + 1 + 1 + 4 + 4) + 2 * kNorm + kLogSumExp;
  const Kept kept = keep(0);
  expect_within(kept.metered, kLayers * layer, 0.02);
  expect_within(kept.allocated, kLayers * layer, 0.02);
  EXPECT_EQ(kept.left, 0);
}

TEST(KeptBytes, CountTheResultsOfKeptProducts) {
  // The input, and the results of qkv (3), attention (1), the projection (1), up (4) and down (1).
  const int64_t layer = kHidden * (1 + 3 + 1 + 1 + 4 + 1) + kLogSumExp;
  const Kept kept =
      keep(1, {.keep = std::make_shared<SelectivePolicy>(SelectivePolicy::matmuls_and_attention())});
  expect_within(kept.metered, kLayers * layer, 0.02);
  expect_within(kept.allocated, kLayers * (layer + kGenerators), 0.02);
  EXPECT_EQ(kept.left, 0);
}

TEST(KeptBytes, CountASharedStorageOnceAndNoParameter) {
  const auto meter = std::make_shared<ActivationMeter>();
  const CountActivations count(meter);
  const auto weight = at::randn({16, 16}).requires_grad_();
  const auto x = at::randn({16, 16}) * 1;
  const auto y = at::mm(x, weight.t()) + at::mm(x.t(), weight);
  EXPECT_EQ(meter->kept_bytes(), 16 * 16 * 4);
  EXPECT_EQ(meter->host_bytes(), 0);
}

TEST(KeptBytes, CountAtEachMeterOfNestedScopes) {
  const auto outer = std::make_shared<ActivationMeter>(), inner = std::make_shared<ActivationMeter>();
  const int64_t bytes = 16 * 16 * 4;
  const auto x = at::randn({16, 16}).requires_grad_();
  const CountActivations count(outer);
  auto y = (x * 1).exp();
  EXPECT_EQ(outer->kept_bytes(), bytes);
  {
    const CountActivations count_too(inner);
    y = checkpointing::checkpoint([](at::Tensor h) { return h.exp().sin(); }, std::move(y)).exp();
  }
  EXPECT_EQ(inner->kept_bytes(), 2 * bytes);  // the region's input and the last result
  EXPECT_EQ(outer->kept_bytes(), 2 * bytes);  // the input is a result that is counted already
  torch::autograd::backward({y.sum()}, {});
  EXPECT_EQ(inner->kept_bytes(), 0);
  EXPECT_EQ(outer->kept_bytes(), 0);
  EXPECT_EQ(inner->peak_bytes(), outer->peak_bytes());
}

// ---- saved parameters

/// Saves its input and a weight, and notes in backward which tensor comes back as the weight.
struct TimesSaved : torch::autograd::Function<TimesSaved> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return at::mm(x, weight);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    came_back = saved[1].unsafeGetTensorImpl();
    return {at::mm(gradients[0], saved[1].t()), at::mm(saved[0].t(), gradients[0])};
  }
  static inline const at::TensorImpl* came_back = nullptr;
};

TEST(SavedParameters, AreThemselvesInBackwardHoweverTheRestIsKept) {
  const auto weight = at::randn({16, 16}), x = at::randn({16, 16}).requires_grad_();
  const auto gradients = [&](const std::function<at::Tensor(const at::Tensor&)>& forward) {
    TimesSaved::came_back = nullptr;
    torch::autograd::backward({forward(x * 1).sum()}, {});
    EXPECT_EQ(TimesSaved::came_back, weight.unsafeGetTensorImpl());
    Tensors found = take_gradients({x, weight});
    return found;
  };
  const auto layer = [&](const at::Tensor& h) { return TimesSaved::apply(h, weight).exp(); };
  const auto counted = [&](const at::Tensor& h) {
    const CountActivations count(std::make_shared<ActivationMeter>());
    return layer(h);
  };
  SavedTensorOffload offload({.host_bytes = 1 << 24, .least_bytes = 64, .from_cpu = true});
  const auto offloaded = [&](const at::Tensor& h) {
    const SavedTensorOffloadScope scope(offload);
    return layer(h);
  };
  const auto recomputed = [&](const at::Tensor& h) { return checkpointing::checkpoint(layer, h); };
  const auto nested = [&](const at::Tensor& h) {
    const CountActivations count(std::make_shared<ActivationMeter>());
    return checkpointing::checkpoint([&](at::Tensor y) { return recomputed(y.sin()).cos(); }, h);
  };
  const auto given = [&](const at::Tensor& h) {
    return checkpointing::checkpoint(
        [](at::Tensor y, at::Tensor matrix) { return TimesSaved::apply(y, matrix).exp(); }, h, weight);
  };
  for (const bool is_trained : {true, false}) {
    weight.requires_grad_(is_trained);
    const Tensors plain = gradients(layer);
    // One that is frozen goes to the host with all else that needs no gradient.
    for (const auto& way : {std::function<at::Tensor(const at::Tensor&)>(counted), {recomputed}, {given}})
      expect_equal_bits(gradients(way), plain, "gradient");
    if (is_trained) expect_equal_bits(gradients(offloaded), plain, "gradient");
    gradients(nested);
  }
}

// ---- saved tensors on the host

TensorFunction in_scope(const TensorFunction& function, SavedTensorOffload& offload) {
  return [=, &offload](Tensors x) {
    const SavedTensorOffloadScope scope(offload);
    return function(std::move(x));
  };
}

constexpr SavedTensorOffloadOptions kAll{.host_bytes = 1 << 24, .least_bytes = 64, .from_cpu = true};

TEST(SavedTensorOffload, GivesThePlainBits) {
  Block block;
  SavedTensorOffload offload(kAll);
  const TensorFunction function = [&](Tensors x) -> Tensors {
    return {torch::nn::functional::dropout(block(x[0]), torch::nn::functional::DropoutFuncOptions().p(0.3))};
  };
  const Tensors inputs{at::randn({2, 6, kWidth})};
  const auto plain = see(function, inputs, block.parameters());
  for (int step = 0; step < 2; ++step) {
    expect_equal_bits(see(in_scope(function, offload), inputs, block.parameters()), plain);
    EXPECT_EQ(offload.bytes_on_host(), 0);
  }
  EXPECT_GE(offload.num_copies(), 2 * 8);
  // Inputs of regions go the same way.
  SavedTensorOffload of_regions(kAll);
  expect_equal_bits(see(in_scope(checkpointed(function), of_regions), inputs, block.parameters()), plain);
  EXPECT_EQ(of_regions.num_copies(), 0);  // leaves with a gradient are the program's
  const auto after_product = [&](const TensorFunction& inner) -> TensorFunction {
    return [=](Tensors x) { return inner({x[0] * 2}); };
  };
  const auto plain_after = see(after_product(function), inputs, block.parameters());
  expect_equal_bits(
      see(in_scope(after_product(checkpointed(function)), of_regions), inputs, block.parameters()),
      plain_after);
  EXPECT_EQ(of_regions.num_copies(), 1);
}

TEST(SavedTensorOffload, KeepsToItsBudgetAndCopiesAStorageOnce) {
  const int64_t bytes = 32 * 32 * 4;
  SavedTensorOffload offload({.host_bytes = 2 * bytes, .least_bytes = bytes, .from_cpu = true});
  const auto meter = std::make_shared<ActivationMeter>();
  const activation::MeterScope meter_scope(meter);
  const SavedTensorOffloadScope scope(offload);
  const auto x = at::randn({32, 32}).requires_grad_();
  const auto a = x.exp();                 // copied
  const auto b = a.view({-1}).sin();      // shares it
  const auto c = b.exp();                 // copied
  const auto d = c.exp();                 // beyond the budget
  const auto e = d.slice(0, 0, 8).exp();  // too small
  EXPECT_EQ(offload.num_copies(), 2);
  EXPECT_EQ(offload.bytes_on_host(), 2 * bytes);
  EXPECT_EQ(meter->host_bytes(), 2 * bytes);
  EXPECT_EQ(meter->kept_bytes(), bytes + 32);
  torch::autograd::backward({e.sum()}, {});
  EXPECT_EQ(offload.bytes_on_host(), 0);
  EXPECT_EQ(meter->kept_bytes(), 0);
}

TEST(SavedTensorOffload, BringsTheNextTensorBackAheadOfItsUse) {
  SavedTensorOffload offload(kAll);
  const auto x = at::randn({32, 32}).requires_grad_();
  const auto loss = [&] {
    const SavedTensorOffloadScope scope(offload);
    auto y = x * 1;
    for (int i = 0; i < 5; ++i) y = y.sin();
    return y.sum();
  };
  torch::autograd::backward({loss()}, {});
  EXPECT_EQ(offload.num_copies(), 5);
  EXPECT_EQ(offload.num_prefetched(), 4);  // all but the one that backward begins with
  torch::autograd::backward({loss()}, {});
  EXPECT_EQ(offload.num_prefetched(), 8);
}

TEST(SavedTensorOffload, NeverTakesParametersAndRefusesWrites) {
  SavedTensorOffload offload(kAll);
  const SavedTensorOffloadScope scope(offload);
  const auto weight = at::randn({16, 16}).requires_grad_();
  const auto x = at::randn({16, 16}).requires_grad_();
  const auto product = at::mm(x, weight.t());
  EXPECT_EQ(offload.num_copies(), 0);
  const auto y = product.exp();
  const auto z = y * 1;
  EXPECT_EQ(offload.num_copies(), 1);
  y.mul_(2);
  EXPECT_ERROR(UsageError, torch::autograd::backward({z.sum()}, {}), "written in place");
  EXPECT_ERROR(UsageError, SavedTensorOffload({.host_bytes = -1}), "host_bytes is -1");
}

}  // namespace
}  // namespace deepspeed::testing
