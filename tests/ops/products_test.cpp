// Products of matrices that are large enough for oneDNN, where a CPU has more of it than of MKL.
#include "deepspeed/ops/transformer/products.h"

#include <vector>

#include <ATen/Functions.h>

#include <gtest/gtest.h>

namespace deepspeed::ops {
namespace {

void expect_near_product(const at::Tensor& seen, const at::Tensor& expected, const char* what) {
  ASSERT_EQ(seen.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(seen.is_contiguous()) << what;
  EXPECT_TRUE(at::allclose(seen.to(at::kDouble), expected, 1e-3, 1e-3)) << what;
}

TEST(Products, AgreeWithDoubleForLargeMatricesOfAnyLayout) {
  at::manual_seed(1);
  constexpr int64_t kRows = 130, kInner = 97, kColumns = 160;  // 2^20 multiplications and more
  const at::Tensor a = at::randn({kRows, kInner}), b = at::randn({kInner, kColumns});
  const at::Tensor row = at::randn({kColumns}), sum = at::randn({kRows, kColumns});
  const at::Tensor expected = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  const auto across = [](const at::Tensor& t) { return t.t().contiguous().t(); };
  const auto apart = [](const at::Tensor& t) { return at::cat({t, t}, 1).narrow(1, 0, t.size(1)); };
  for (const at::Tensor& left : {a, across(a), apart(a)}) {
    for (const at::Tensor& right : {b, across(b), apart(b)}) {
      expect_near_product(product(left, right), expected, "product");
      expect_near_product(add_product(row, left, right), expected + row, "with a row added");
      expect_near_product(add_product(sum, left, right), expected + sum, "with a matrix added");
      expect_near_product(add_product(across(sum), left, right), expected + sum, "with one of columns added");
    }
  }
  expect_near_product(add_product(row.to(at::kDouble), a, b), expected + row, "with a row of doubles added");
}

TEST(Products, KeepInfinityAndNan) {
  at::Tensor a = at::ones({128, 128}), b = at::ones({128, 128});
  a[3][5] = INFINITY;
  b[5][7] = -INFINITY;
  const at::Tensor seen = product(a, b);
  EXPECT_EQ(seen[3][0].item<float>(), INFINITY);
  EXPECT_EQ(seen[0][7].item<float>(), -INFINITY);
  EXPECT_EQ(seen[3][7].item<float>(), -INFINITY);
  b[5][7] = 0;
  EXPECT_TRUE(product(a, b)[3][7].isnan().item<bool>());
}

}  // namespace
}  // namespace deepspeed::ops
