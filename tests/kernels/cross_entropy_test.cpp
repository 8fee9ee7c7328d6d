#include "deepspeed/kernels/ops/cross_entropy.h"

#include <cmath>
#include <limits>
#include <utility>

#include "deepspeed/base/error.h"

#include "tests/kernels/op_case.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

/// The losses and the logits' gradients of rows, in fp64.
struct EntropyReference {
  EntropyReference(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& row_gradients,
                   double smoothing) {
    const at::Tensor log_softmax = wide(logits).log_softmax(-1);
    const at::Tensor counts = targets.ne(-100);
    const at::Tensor classes = targets.clamp_min(0);
    at::Tensor target = at::full_like(log_softmax, smoothing / static_cast<double>(logits.size(1)));
    target.scatter_add_(1, classes.unsqueeze(1), at::full({targets.size(0), 1}, 1 - smoothing, at::kDouble));
    losses = -(log_softmax * target).sum(-1) * counts;
    gradients = (log_softmax.exp() - target) * (counts * wide(row_gradients)).unsqueeze(1);
  }
  at::Tensor losses, gradients;
};

at::Tensor random_targets(int64_t rows, int64_t classes) {
  at::Tensor targets = at::randint(classes, {rows}, at::kLong);
  if (rows > 2) targets[1] = -100;
  return targets;
}

at::ScalarType wide_of(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

TEST(CrossEntropy, AgreesWithAReferenceForEveryDtypeSizeAndInstructionSet) {
  at::manual_seed(1);
  for_each_target([](const std::string& target) {
    for (const auto dtype : kOpDtypes) {
      for (const int64_t classes : kOddSizes) {
        for (const double smoothing : {0.0, 0.2}) {
          const at::Tensor logits = at::randn({7, classes}).mul(5).to(dtype),
                           targets = random_targets(7, classes);
          const at::Tensor row_gradients = at::randn({7}).to(wide_of(dtype));
          const EntropyReference expected(logits, targets, row_gradients, smoothing);
          const CrossEntropyOptions options{.label_smoothing = smoothing};
          expect_near_reference(cross_entropy_(logits, targets, {}, options), expected.losses, 64,
                                target + " alone");
          const at::Tensor losses = cross_entropy_(logits, targets, row_gradients, options);
          expect_near_reference(losses, expected.losses, 64, target + " losses");
          expect_near_reference(logits, expected.gradients, 32, target + " gradients");
        }
      }
    }
  });
}

TEST(CrossEntropy, DoesNotDependOnThreadsOrAlignment) {
  const at::Tensor logits = at::randn({97, 1003}), targets = random_targets(97, 1003), ones = at::ones({97});
  const auto gradients = [&](const at::Tensor& given) {
    cross_entropy_(given, targets, ones, {});
    return given;
  };
  expect_equal_for_threads([&] { return gradients(logits.clone()); });
  EXPECT_TRUE(at::equal(gradients(unaligned(logits)), gradients(logits.clone())));
}

TEST(CrossEntropy, TakesNansAndInfinitiesAsTorchDoes) {
  const float inf = std::numeric_limits<float>::infinity();
  at::Tensor logits = at::randn({5, 40});
  logits[0][39] = std::numeric_limits<float>::quiet_NaN();
  logits[1][3] = inf;
  logits[2][3] = -inf;  // the target's
  logits[3][4] = -inf;
  logits[4].fill_(-inf);
  const at::Tensor targets = at::full({5}, 3, at::kLong);
  const at::Tensor torch = at::cross_entropy_loss(logits, targets, {}, at::Reduction::None);
  EXPECT_TRUE(at::allclose(cross_entropy_(logits.clone(), targets, {}, {}), torch, 1e-5, 1e-5, true));
}

TEST(LinearCrossEntropy, GivesTheGradientsOfAProductForAnyChunk) {
  at::manual_seed(2);
  for (const auto dtype : kOpDtypes) {
    const at::Tensor hidden = at::randn({29, 12}).to(dtype), weight = at::randn({50, 12}).mul(0.5).to(dtype);
    const at::Tensor bias = at::randn({50}).to(dtype), targets = random_targets(29, 50);
    const at::Tensor row_gradients = at::rand({29}).to(wide_of(dtype));
    const bool is_narrow = at::empty({}, dtype).element_size() == 2;
    const at::Tensor logits = wide(hidden).matmul(wide(weight).t()) + wide(bias);
    const EntropyReference expected(logits, targets, row_gradients, 0.1);
    // Logits and their gradients are rounded to the dtype.
    const double slack = is_narrow ? (dtype == at::kHalf ? 0x1p17 : 0x1p20) : 2048;
    for (const int64_t chunk_rows : {0, 1, 4, 29, 100}) {
      const auto [losses, gradients] =
          linear_cross_entropy(hidden, weight, bias, targets, row_gradients, {true, true, true},
                               {.label_smoothing = 0.1}, chunk_rows);
      expect_near_reference(losses, expected.losses, slack, "losses");
      expect_near_reference(gradients.hidden, expected.gradients.matmul(wide(weight)), slack, "hidden");
      expect_near_reference(gradients.weight, expected.gradients.t().matmul(wide(hidden)), slack, "weight");
      expect_near_reference(gradients.bias, expected.gradients.sum(0), slack, "bias");
    }
  }
}

// The factors of what waits for a loss scale: powers of two in fp16, 1 in other dtypes.
TEST(LinearCrossEntropy, GivesGradientsWithFactorsWithoutTheLosses) {
  at::manual_seed(3);
  for (const auto dtype : kOpDtypes) {
    const at::Tensor hidden = at::randn({29, 12}).to(dtype), weight = at::randn({50, 12}).to(dtype);
    const at::Tensor bias = at::randn({50}).to(dtype), targets = random_targets(29, 50);
    const WantedGradients all{true, true, true};
    for (const int64_t chunk_rows : {4, 29}) {
      const auto own = linear_cross_entropy(hidden, weight, bias, targets, {}, all, {}, chunk_rows).gradients;
      const auto given = linear_cross_entropy(hidden, weight, bias, targets, at::ones({29}, wide_of(dtype)),
                                              all, {}, chunk_rows)
                             .gradients;
      EXPECT_FALSE(given.factors.defined());
      ASSERT_EQ(own.factors.scalar_type(), wide_of(dtype));
      const std::pair<at::Tensor, at::Tensor> pairs[] = {
          {own.hidden, given.hidden}, {own.weight, given.weight}, {own.bias, given.bias}};
      for (int64_t i = 0; i < 3; ++i) {
        const auto factor = own.factors[i].item<double>();
        int exponent = 0;
        EXPECT_EQ(std::frexp(factor, &exponent), 0.5) << dtype;
        if (dtype != at::kHalf) {
          EXPECT_EQ(factor, 1.0);
        }
        const at::Tensor got = wide(pairs[i].first) * factor, want = wide(pairs[i].second);
        EXPECT_LT(((got - want).norm() / want.norm()).item<double>(), dtype == at::kHalf ? 1e-3 : 1e-12) << i;
      }
    }
  }
}

// The head of GPT-2 124M: 65,536 rows of 50,304 classes in 16 bits, 6.6 GB.
TEST(LinearCrossEntropy, TakesChunksByTheMemoryOfAGpu) {
  constexpr int64_t kGigabyte = 1'000'000'000, kRows = 65536, kRowBytes = 50304 * 2;
  const auto chunk = [](int64_t available, bool sums_weights = true) {
    return rows_of_gpu_chunk(kRows, kRowBytes, available, sums_weights);
  };
  EXPECT_EQ(chunk(53 * kGigabyte), kRows) << "an eighth holds all logits";
  EXPECT_EQ(chunk(52 * kGigabyte), 9472) << "7 chunks, of whole tiles";
  EXPECT_EQ(chunk(53 * kGigabyte, false), 9472) << "there are no sums over chunks";
  EXPECT_EQ(chunk(4 * kGigabyte), 4736) << "half a gigabyte each: 14 chunks";
  EXPECT_EQ(chunk(0), 667) << "64 MiB";
  EXPECT_EQ(rows_of_gpu_chunk(100, int64_t{1} << 30, 0, true), 32);
  EXPECT_EQ(rows_of_gpu_chunk(20, kRowBytes, 0, false), 20);
  EXPECT_EQ(rows_of_gpu_chunk(0, kRowBytes, kGigabyte, true), 0);
  EXPECT_EQ(rows_of_gpu_chunk(700, kRowBytes, 0, false), 384) << "chunks of one size";
}

TEST(LinearCrossEntropy, MakesOnlyWhatIsWanted) {
  const at::Tensor hidden = at::randn({6, 4}), weight = at::randn({9, 4}), targets = random_targets(6, 9);
  const LinearCrossEntropy none = linear_cross_entropy(hidden, weight, {}, targets, {}, {}, {});
  EXPECT_FALSE(none.gradients.hidden.defined() || none.gradients.weight.defined() ||
               none.gradients.bias.defined());
  const auto some =
      linear_cross_entropy(hidden, weight, {}, targets, at::ones({6}), {.weight = true}, {}).gradients;
  EXPECT_TRUE(some.weight.defined() && !some.hidden.defined());
  const auto of_no_rows = linear_cross_entropy(hidden.narrow(0, 0, 0), weight, {}, targets.narrow(0, 0, 0),
                                               at::ones({0}), {true, true, false}, {});
  EXPECT_TRUE(at::equal(of_no_rows.gradients.weight, at::zeros_like(weight)));
}

TEST(LinearCrossEntropy, NamesTheArgumentThatDoesNotFit) {
  const at::Tensor hidden = at::zeros({6, 4}), weight = at::zeros({9, 4}),
                   targets = at::zeros({6}, at::kLong);
  const auto loss = [](const at::Tensor& h, const at::Tensor& w, const at::Tensor& t, double smoothing = 0) {
    return linear_cross_entropy(h, w, {}, t, {}, {}, {.label_smoothing = smoothing});
  };
  EXPECT_ERROR(UsageError, loss(hidden, weight, targets + 9), "the target of row 0 is 9", "a class below 9");
  EXPECT_ERROR(UsageError, loss(hidden, weight, targets - 1), "the target of row 0 is -1");
  EXPECT_ERROR(UsageError, loss(hidden, weight, targets.to(at::kInt)), "targets has dtype Int",
               "expected Long");
  EXPECT_ERROR(UsageError, loss(hidden, at::zeros({9, 5}), targets), "weight has shape [9, 5]",
               "[classes, 4]");
  EXPECT_ERROR(UsageError, loss(hidden, weight.to(at::kDouble), targets), "weight has dtype Double");
  EXPECT_ERROR(UsageError, loss(hidden, weight, targets, 2), "label_smoothing is 2");
  EXPECT_ERROR(UsageError, linear_cross_entropy(hidden, weight, {}, targets, {}, {.bias = true}, {}),
               "bias is undefined, but its gradient is wanted");
  EXPECT_ERROR(UsageError, cross_entropy_(at::zeros({4, 6}).t(), targets, {}, {}), "logits has shape [6, 4]");
}

}  // namespace
}  // namespace deepspeed::kernels
