#include "deepspeed/kernels/ops/embedding_gradient.h"

#include "deepspeed/base/error.h"

#include "tests/kernels/op_case.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

at::Tensor embedding_reference(const at::Tensor& grad, const at::Tensor& indices, int64_t rows,
                               int64_t padding) {
  const at::Tensor flat = grad.to(at::kDouble).reshape({-1, grad.size(-1)});
  at::Tensor sums = at::zeros({rows, grad.size(-1)}, at::kDouble);
  sums.index_add_(0, indices.reshape({-1}).to(at::kLong), flat);
  if (padding >= 0) sums[padding].zero_();
  return sums;
}

TEST(EmbeddingGradient, AgreesWithAReferenceForEveryDtypeSizeAndInstructionSet) {
  at::manual_seed(1);
  for_each_target([](const std::string& target) {
    for (const auto dtype : kOpDtypes) {
      for (const int64_t dim : kOddSizes) {
        const at::Tensor grad = at::randn({3, 50, dim}).to(dtype);
        const at::Tensor indices = at::randint(17, {3, 50}, dim % 2 == 0 ? at::kLong : at::kInt);
        // Up to some 20 positions a row.
        expect_near_reference(embedding_gradient(grad, indices, 17),
                              embedding_reference(grad, indices, 17, -1), 128, target);
        expect_near_reference(embedding_gradient(grad, indices, 40, 3),
                              embedding_reference(grad, indices, 40, 3), 128, target + " with padding");
      }
    }
  });
}

TEST(EmbeddingGradient, DoesNotDependOnThreadsStridesOrAlignment) {
  const at::Tensor grad = at::randn({4000, 37});
  for (const int64_t rows : {1, 3, 977}) {
    const at::Tensor indices = at::randint(rows, {4000}, at::kLong);
    expect_equal_for_threads([&] { return embedding_gradient(grad, indices, rows); });
    const at::Tensor plain = embedding_gradient(grad, indices, rows);
    EXPECT_TRUE(at::equal(embedding_gradient(unaligned(grad), indices, rows), plain));
    EXPECT_TRUE(at::equal(embedding_gradient(strided(grad), indices, rows), plain));
  }
}

// 16-bit sums of ones would stop at 256 in bf16.
TEST(EmbeddingGradient, AddsUpInFp32) {
  const at::Tensor ones = at::ones({1000, 2}, at::kBFloat16);
  EXPECT_EQ(embedding_gradient(ones, at::zeros({1000}, at::kLong), 1)[0][0].item<float>(), 1000.0F);
}

TEST(EmbeddingGradient, NamesTheArgumentThatDoesNotFit) {
  const at::Tensor grad = at::zeros({4, 8}), indices = at::zeros({4}, at::kLong);
  EXPECT_ERROR(UsageError, embedding_gradient(grad, indices + 7, 7), "the index at position 0 is 7",
               "a row below 7");
  EXPECT_ERROR(UsageError, embedding_gradient(grad, indices.narrow(0, 0, 3), 7), "indices has shape [3]");
  EXPECT_ERROR(UsageError, embedding_gradient(grad, grad, 7), "indices has dtype Float");
  EXPECT_ERROR(UsageError, embedding_gradient(grad, indices, 7, 7), "padding_index is 7");
}

}  // namespace
}  // namespace deepspeed::kernels
