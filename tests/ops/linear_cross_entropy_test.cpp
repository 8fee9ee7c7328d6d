#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/ops/functional.h"

#include "tests/ops/gradient_check.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"

namespace deepspeed::ops {
namespace {

constexpr int64_t kRows = 10, kClasses = 9;

at::Tensor some_targets() {
  at::Tensor targets = at::randint(kClasses, {2, kRows / 2}, at::kLong);
  targets[0][1] = -100;
  return targets;
}

TEST(LinearCrossEntropyOp, ReturnsItsGradientsForEveryReductionInForwardOrBackward) {
  at::manual_seed(1);
  const at::Tensor targets = some_targets();
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum, Reduction::kNone}) {
    for (const bool in_forward : {true, false}) {
      const LinearCrossEntropyOptions options{.label_smoothing = 0.1,
                                              .reduction = reduction,
                                              .gradients_in_forward = in_forward,
                                              .chunk_rows = 3};
      check_gradients(
          [&](const Tensors& t) { return Tensors{linear_cross_entropy(t[0], t[1], targets, t[2], options)}; },
          {learned({2, kRows / 2, 4}), learned({kClasses, 4}), learned({kClasses})}, "all");
      check_gradients(
          [&](const Tensors& t) { return Tensors{linear_cross_entropy(t[0], t[1], targets, {}, options)}; },
          {at::randn({2, kRows / 2, 4}, at::kDouble), learned({kClasses, 4})}, "the weight alone");
    }
  }
}

TEST(LinearCrossEntropyOp, AgreesWithTorch) {
  at::manual_seed(2);
  const at::Tensor hidden = at::randn({kRows, 6}), weight = at::randn({kClasses, 6}),
                   targets = some_targets().flatten();
  const at::Tensor logits = at::linear(hidden, weight);
  const std::pair<Reduction, at::Reduction::Reduction> reductions[] = {
      {Reduction::kMean, at::Reduction::Mean},
      {Reduction::kSum, at::Reduction::Sum},
      {Reduction::kNone, at::Reduction::None}};
  for (const auto& [own, torchs] : reductions) {
    for (const double smoothing : {0.0, 0.3}) {
      const at::Tensor expected = at::cross_entropy_loss(logits, targets, {}, torchs, -100, smoothing);
      const at::Tensor loss =
          linear_cross_entropy(hidden, weight, targets, {}, {.label_smoothing = smoothing, .reduction = own});
      EXPECT_TRUE(at::allclose(loss, expected, 1e-5, 1e-5));
    }
  }
  const at::Tensor none_counts = at::full({kRows}, -100, at::kLong);
  EXPECT_TRUE(
      linear_cross_entropy(hidden, weight, none_counts).isnan().item<bool>());  // as torch's mean of nothing
}

TEST(LinearCrossEntropyOp, ReturnsItsGradientsAgainIfTheGraphIsRetained) {
  const at::Tensor hidden = at::randn({kRows, 6}).set_requires_grad(true);
  const at::Tensor weight = at::randn({kClasses, 6}).set_requires_grad(true),
                   targets = some_targets().flatten();
  const at::Tensor loss = linear_cross_entropy(hidden, weight, targets);
  const auto gradient = [&](double scale) {
    return torch::autograd::grad({loss}, {weight}, {at::full({}, scale)}, /*retain_graph=*/true)[0];
  };
  const at::Tensor once = gradient(1);
  EXPECT_TRUE(at::allclose(gradient(4), once * 4));
  EXPECT_TRUE(at::equal(gradient(1), once));
  EXPECT_TRUE(at::equal(torch::autograd::grad({loss}, {weight}, {at::full({}, 4.0)})[0], once * 4));
}

TEST(LinearCrossEntropyOp, CastsUnderAutocast) {
  const at::Tensor hidden = at::randn({kRows, 6}).set_requires_grad(true);
  const at::Tensor weight = at::randn({kClasses, 6}).set_requires_grad(true),
                   targets = some_targets().flatten();
  const at::Tensor expected = linear_cross_entropy(hidden, weight, targets);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor loss = linear_cross_entropy(hidden.to(at::kBFloat16), weight, targets);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(loss, expected, 0.02, 0.02));
  const auto gradients = torch::autograd::grad({loss}, {hidden, weight});
  EXPECT_EQ(gradients[1].scalar_type(), at::kFloat);
}

double rms_error(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor want = expected.to(at::kDouble), error = got.to(at::kDouble) - want;
  return (error.square().mean() / want.square().mean()).sqrt().item<double>();
}

// One gradient of a logit is 1 / (rows * classes), 6e-8 here, where fp16 ends at 6e-8.
TEST(LinearCrossEntropyOp, KeepsThePrecisionOfHalfGradientsUntilTheLossScaleComes) {
  constexpr int64_t kManyRows = 1024, kManyClasses = 16'000, kFeatures = 8;
  at::manual_seed(3);
  const at::Tensor hidden = at::randn({kManyRows, kFeatures}).to(at::kHalf);
  const at::Tensor weight = at::randn({kManyClasses, kFeatures}).mul_(0.02).add_(0.05).to(at::kHalf);
  const at::Tensor bias = at::randn({kManyClasses}).mul_(0.02).to(at::kHalf);
  const at::Tensor targets = at::randint(kManyClasses, {kManyRows}, at::kLong);
  const auto leaf = [](const at::Tensor& t, at::ScalarType dtype) {
    return t.to(dtype).detach().clone().set_requires_grad(true);
  };
  const auto learned_in = [&](at::ScalarType dtype) {
    return Tensors{leaf(hidden, dtype), leaf(weight, dtype), leaf(bias, dtype)};
  };
  const Tensors exact = learned_in(at::kDouble);
  const Tensors expected = torch::autograd::grad(
      {at::cross_entropy_loss(at::linear(exact[0], exact[1], exact[2]), targets)}, exact);
  // Takes all rows at once or in chunks, under the loss scales of a new run and of a later step.
  for (const int64_t chunk_rows : {int64_t{0}, kManyRows}) {
    const Tensors t = learned_in(at::kHalf);
    const at::Tensor loss = linear_cross_entropy(t[0], t[1], targets, t[2], {.chunk_rows = chunk_rows});
    for (const double scale : {0x1p12, 0x1p16, 0x1p20}) {
      const Tensors got = torch::autograd::grad({loss}, t, {at::full({}, scale)}, /*retain_graph=*/true);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_LT(rms_error(got[i].to(at::kDouble) / scale, expected[i]), 5e-3)
            << i << ", scale " << scale << ", chunks of " << chunk_rows;
      }
    }
  }
}

// No power of two that the range of fp16 is filled by may leave it.
TEST(LinearCrossEntropyOp, KeepsFiniteGradientsInTheRangeOfHalf) {
  const at::Tensor targets = at::zeros({kRows}, at::kLong);
  for (const double of_hidden : {0.0, 1e-4, 1.0, 3e4}) {
    for (const double of_weight : {0.0, 1e-4, 1.0, 3e4}) {
      const at::Tensor hidden = at::full({kRows, 6}, of_hidden).to(at::kHalf).set_requires_grad(true);
      at::Tensor rows = at::full({kClasses, 6}, -of_weight);
      rows[0].fill_(of_weight);
      for (const auto dtype : {at::kHalf, at::kFloat}) {
        const at::Tensor weight = rows.to(dtype).detach().set_requires_grad(true);
        const at::Tensor loss = linear_cross_entropy(hidden, weight, targets.add(1), {}, {.chunk_rows = 4});
        if (of_hidden * of_weight > 1e4) continue;  // the logits are infinite
        for (const at::Tensor& gradient : torch::autograd::grad({loss}, {hidden, weight})) {
          EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << of_hidden << " " << of_weight << dtype;
        }
      }
    }
  }
  const at::Tensor hidden = at::full({kRows, 6}, INFINITY).to(at::kHalf).set_requires_grad(true);
  const at::Tensor weight = at::zeros({kClasses, 6}, at::kHalf).set_requires_grad(true);
  const at::Tensor loss = linear_cross_entropy(hidden, weight, targets);
  EXPECT_FALSE(torch::autograd::grad({loss}, {weight})[0].isfinite().all().item<bool>());
}

TEST(LinearCrossEntropyOp, TakesFp32ParametersWithSixteenBitInputs) {
  at::manual_seed(4);
  const at::Tensor weight = at::randn({kClasses, 6}), bias = at::randn({kClasses}),
                   targets = some_targets().flatten();
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor hidden = at::randn({kRows, 6}).to(dtype);
    const auto with = [&](at::ScalarType of_hidden, at::ScalarType of_weight, at::ScalarType of_bias,
                          auto loss) {
      Tensors t{hidden.to(of_hidden), weight.to(of_weight), bias.to(of_bias)};
      for (at::Tensor& tensor : t) tensor = tensor.detach().clone().set_requires_grad(true);
      const at::Tensor value = loss(t);
      Tensors all = torch::autograd::grad({value}, t);
      all.push_back(value.detach());
      return all;
    };
    for (const bool in_forward : {true, false}) {
      const LinearCrossEntropyOptions options{.gradients_in_forward = in_forward, .chunk_rows = 3};
      const auto own = [&](const Tensors& t) {
        return linear_cross_entropy(t[0], t[1], targets, t[2], options);
      };
      const auto torchs = [&](const Tensors& t) {
        return at::cross_entropy_loss(at::linear(t[0], t[1], t[2]), targets);
      };
      // A weight of fp32 makes logits of fp32: only the gradient of the hidden states is rounded.
      const Tensors exact = with(at::kDouble, at::kDouble, at::kDouble, torchs);
      const Tensors wide = with(dtype, at::kFloat, at::kFloat, own);
      EXPECT_EQ(wide[0].scalar_type(), dtype);
      for (size_t i = 1; i < exact.size(); ++i) {
        EXPECT_EQ(wide[i].scalar_type(), at::kFloat);
        EXPECT_LT(rms_error(wide[i], exact[i]), 1e-5) << i << dtype;
      }
      EXPECT_LT(rms_error(wide[0], exact[0]), 4e-3) << dtype;
      const Tensors narrow = with(dtype, dtype, at::kFloat, own);
      EXPECT_EQ(narrow[1].scalar_type(), dtype);
      EXPECT_EQ(narrow[2].scalar_type(), at::kFloat);
      for (size_t i = 0; i < exact.size(); ++i) EXPECT_LT(rms_error(narrow[i], exact[i]), 2e-2) << i << dtype;
    }
  }
}

/// Returns the most bytes that a loss and its backward hold.
int64_t peak_of(const std::function<at::Tensor()>& loss, const Tensors& learned) {
  const testing::AllocationCounter counter;
  torch::autograd::grad({loss()}, learned);
  return counter.peak_bytes();
}

TEST(LinearCrossEntropyOp, NeedsAThirdOfTorchsMemory) {
  constexpr int64_t kManyRows = 1024, kVocabulary = 50'000, kFeatures = 64;
  const at::Tensor hidden = at::randn({kManyRows, kFeatures}).set_requires_grad(true);
  const at::Tensor weight = at::randn({kVocabulary, kFeatures}).mul_(0.02).set_requires_grad(true);
  const at::Tensor targets = at::randint(kVocabulary, {kManyRows}, at::kLong);
  const int64_t torchs =
      peak_of([&] { return at::cross_entropy_loss(at::linear(hidden, weight), targets); }, {hidden, weight});
  EXPECT_GE(torchs, 2 * kManyRows * kVocabulary * 4);
  for (const bool in_forward : {true, false}) {
    const LinearCrossEntropyOptions options{.gradients_in_forward = in_forward};
    const int64_t own =
        peak_of([&] { return linear_cross_entropy(hidden, weight, targets, {}, options); }, {hidden, weight});
    EXPECT_LE(own, torchs * 3 / 10) << own << " bytes, torch " << torchs;
  }
}

TEST(LinearCrossEntropyOp, NamesTheArgumentThatDoesNotFit) {
  const at::Tensor hidden = at::zeros({3, 4}), weight = at::zeros({5, 4});
  EXPECT_ERROR(UsageError, linear_cross_entropy(hidden, weight, at::zeros({4}, at::kLong)),
               "targets has shape [4]", "that of hidden, [3, 4]");
  EXPECT_ERROR(UsageError, linear_cross_entropy(hidden, weight.to(at::kHalf), at::zeros({3}, at::kLong)),
               "weight has dtype Half, expected Float");
  EXPECT_ERROR(UsageError, linear_cross_entropy(hidden, weight, at::zeros({3}, at::kLong), at::zeros({4})),
               "bias has shape [4], expected [5]");
}

}  // namespace
}  // namespace deepspeed::ops
