#include "deepspeed/kernels/newton_schulz.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

at::Tensor random_matrix(at::IntArrayRef shape) {
  return at::randn(shape, at::detail::createCPUGenerator(3), at::kFloat);
}

// The iteration on the singular values alone, in double.
at::Tensor reference(const at::Tensor& matrix) {
  const auto [u, s, vh] = at::linalg_svd(matrix.to(at::kDouble), /*full_matrices=*/false);
  at::Tensor x = s / (s.square().sum().sqrt() + 1e-7);
  for (int i = 0; i < 5; ++i) x = 3.4445 * x - 4.7750 * x.pow(3) + 2.0315 * x.pow(5);
  return u.matmul(at::diag(x)).matmul(vh);
}

TEST(NewtonSchulz, MapsTheSingularValuesByTheQuintic) {
  for (const auto method : {NewtonSchulzMethod::kStandard, NewtonSchulzMethod::kGram}) {
    for (const auto& [rows, cols] : {std::pair{5, 17}, std::pair{17, 5}, std::pair{9, 9}, std::pair{1, 4}}) {
      const at::Tensor matrix = random_matrix({rows, cols});
      const at::Tensor result = orthogonalize(matrix, method);
      ASSERT_EQ(result.sizes(), matrix.sizes());
      const double difference = (result.to(at::kDouble) - reference(matrix)).abs().max().item<double>();
      EXPECT_LT(difference, 1e-4) << rows << " x "
                                  << cols;  // small values grow up to 485-fold, and so do their errors
      const auto singular = at::linalg_svdvals(result);
      EXPECT_GT(singular.min().item<double>(), 0.3);
      EXPECT_LT(singular.max().item<double>(), 1.3);
    }
  }
}

TEST(NewtonSchulz, TreatsEachMatrixOfABatchByItself) {
  const at::Tensor batch = random_matrix({3, 4, 6});
  for (const auto method : {NewtonSchulzMethod::kStandard, NewtonSchulzMethod::kGram}) {
    const at::Tensor together = orthogonalize(batch, method);
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(at::allclose(together[i], orthogonalize(batch[i], method), 1e-5, 1e-5));
    }
  }
}

TEST(NewtonSchulz, LeavesAMatrixOfZerosAndKeepsNan) {
  EXPECT_TRUE(orthogonalize(at::zeros({3, 4}), NewtonSchulzMethod::kGram).eq(0).all().item<bool>());
  EXPECT_EQ(orthogonalize(at::zeros({0, 4}), NewtonSchulzMethod::kGram).numel(), 0);
  EXPECT_TRUE(orthogonalize(at::full({3, 4}, NAN), NewtonSchulzMethod::kStandard).isnan().all().item<bool>());
}

TEST(NewtonSchulz, NamesWhatItCannotTake) {
  EXPECT_ERROR(UsageError, orthogonalize(at::ones({3}), NewtonSchulzMethod::kGram), "shape [3]",
               "expected at least 2 dimensions");
  EXPECT_ERROR(UsageError, newton_schulz_method("grams"), "ns_method is 'grams'", "\"gram\" or \"standard\"");
  EXPECT_EQ(newton_schulz_method("standard"), NewtonSchulzMethod::kStandard);
}

}  // namespace
}  // namespace deepspeed::kernels
