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

TEST(LinearCrossEntropyOp, HasItsGradientsForEveryReductionAndWay) {
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

TEST(LinearCrossEntropyOp, GivesItsGradientsAgainWhereTheGraphIsRetained) {
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

/// Returns the most bytes that a loss and its backward hold.
int64_t peak_of(const std::function<at::Tensor()>& loss, const Tensors& learned) {
  const testing::AllocationCounter counter;
  torch::autograd::grad({loss()}, learned);
  return counter.peak_bytes();
}

TEST(LinearCrossEntropyOp, HoldsAThirdOfTheMemoryOfTorch) {
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
               "weight has dtype Half");
}

}  // namespace
}  // namespace deepspeed::ops
