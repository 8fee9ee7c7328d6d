#include "deepspeed/kernels/ops/dropout.h"

#include <array>
#include <cmath>
#include <limits>

#include "deepspeed/base/error.h"

#include "tests/kernels/op_case.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

/// Philox 4x32-10 as its authors write it.
std::array<uint32_t, 4> philox_reference(std::array<uint32_t, 4> counter, uint64_t seed) {
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53U} * counter[0], b = uint64_t{0xcd9e8d57U} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(a)};
    key0 += 0x9e3779b9U;
    key1 += 0xbb67ae85U;
  }
  return counter;
}

uint32_t word_of(const Philox& philox, int64_t index) {
  const auto block = static_cast<uint64_t>(index / 4);
  const std::array<uint32_t, 4> counter = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                           static_cast<uint32_t>(philox.offset),
                                           static_cast<uint32_t>(philox.offset >> 32)};
  return philox_reference(counter, philox.seed)[static_cast<size_t>(index % 4)];
}

/// Returns 1 / (1 - ratio) where an element is kept, else 0.
at::Tensor factors_reference(at::IntArrayRef sizes, double ratio, const Philox& philox) {
  at::Tensor factors = at::empty(sizes, at::kDouble);
  auto* const values = factors.data_ptr<double>();
  const auto threshold = static_cast<uint64_t>(std::llround(ratio * 4294967296.0));
  for (int64_t i = 0; i < factors.numel(); ++i) {
    values[i] = word_of(philox, i) >= threshold ? 1 / (1 - ratio) : 0.0;
  }
  return factors;
}

// The vectors of the authors' own test (Random123, kat_vectors).
TEST(Philox, GivesThePublishedNumbers) {
  EXPECT_EQ(philox_reference({0, 0, 0, 0}, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffffU;
  EXPECT_EQ(philox_reference({ones, ones, ones, ones}, ~uint64_t{0}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Dropout, AgreesWithAReferenceForEveryDtypeSizeAndInstructionSet) {
  at::manual_seed(1);
  const Philox philox{0x123456789abcdef0ULL, 0xfedcba9876543210ULL};
  for_each_target([&](const std::string& target) {
    for (const auto dtype : kOpDtypes) {
      for (const int64_t columns : {1, 7, 33, 1003, 2500}) {
        for (const double ratio : {0.1, 0.5}) {
          const at::Tensor input = at::randn({2, 9, columns}).to(dtype), residual = at::randn_like(input);
          const auto parameter = columns % 2 == 0 || dtype == at::kDouble ? dtype : at::kFloat;
          const at::Tensor bias = at::randn({columns}).to(parameter), grad = at::randn_like(input);
          const at::Tensor factors = factors_reference(input.sizes(), ratio, philox);
          expect_near_reference(dropout(input, ratio, philox), wide(input) * factors, 2, target + " dropout");
          expect_near_reference(bias_dropout_residual(input, bias, residual, ratio, philox),
                                (wide(input) + wide(bias)) * factors + wide(residual), 16,
                                target + " forward");
          const BiasDropoutGradients gradients = bias_dropout_residual_backward(grad, bias, ratio, philox);
          expect_near_reference(gradients.input, wide(grad) * factors, 2, target + " input");
          expect_near_reference(gradients.bias, (wide(grad) * factors).reshape({-1, columns}).sum(0), 64,
                                target + " bias");
        }
      }
    }
  });
}

TEST(Dropout, HasOneMaskForAnyThreadsAddressAndWayToRun) {
  const Philox philox{42, 7};
  const at::Tensor input = at::randn({211, 333});
  expect_equal_for_threads([&] { return dropout(input, 0.3, philox); });
  const at::Tensor plain = dropout(input, 0.3, philox);
  EXPECT_TRUE(at::equal(dropout(unaligned(input), 0.3, philox), plain));
  EXPECT_TRUE(at::equal(dropout(strided(input), 0.3, philox), plain));
  const at::Tensor in_place = input.clone();
  dropout_(in_place, 0.3, philox);
  EXPECT_TRUE(at::equal(in_place, plain));
  EXPECT_FALSE(at::equal(dropout(input, 0.3, {42, 8}), plain));
  EXPECT_FALSE(at::equal(dropout(input, 0.3, {43, 7}), plain));
}

TEST(Dropout, KeepsTheShareThatItIsToKeep) {
  const at::Tensor ones = at::ones({1000, 1000});
  for (const double ratio : {0.1, 0.25, 0.9}) {
    const double kept = (dropout(ones, ratio, {3, 9}) != 0).sum().item<double>() / 1e6;
    EXPECT_NEAR(kept, 1 - ratio, 5 * std::sqrt(ratio * (1 - ratio) / 1e6)) << ratio;  // five deviations
  }
  EXPECT_TRUE(at::equal(dropout(ones, 0, {3, 9}), ones));
  EXPECT_TRUE(at::equal(dropout(ones, 1, {3, 9}), at::zeros_like(ones)));
}

TEST(Dropout, MakesNanOfWhatHasNoProductWithZero) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(dropout(at::full({64}, inf), 1, Philox{}).isnan().all().item<bool>());
  const at::Tensor some = dropout(at::full({64}, inf), 0.5, {1, 2});
  EXPECT_TRUE((some.isnan() | (some == inf)).all().item<bool>());
}

TEST(NextPhilox, ComesBackWithTheGeneratorsState) {
  at::manual_seed(5);
  const Philox first = next_philox(at::kCPU), second = next_philox(at::kCPU);
  EXPECT_NE(first.seed, second.seed);
  at::manual_seed(5);
  const Philox again = next_philox(at::kCPU);
  EXPECT_EQ(again.seed, first.seed);
  EXPECT_EQ(again.offset, first.offset);
}

TEST(Dropout, NamesTheArgumentThatDoesNotFit) {
  const at::Tensor input = at::zeros({2, 8});
  EXPECT_ERROR(UsageError, dropout(input, 1.5, Philox{}), "ratio is 1.5", "expected a number in [0, 1]");
  EXPECT_ERROR(UsageError, dropout(input, std::nan(""), Philox{}), "ratio is nan");
  EXPECT_ERROR(UsageError, dropout(input.to(at::kBool), 0.5, Philox{}), "input has dtype Bool");
  EXPECT_ERROR(UsageError, dropout_(at::zeros({2, 8}).t(), 0.5, Philox{}),
               "values of shape [8, 2] are not contiguous");
  EXPECT_ERROR(UsageError, bias_dropout_residual(input, {}, at::zeros({8}), 0.5, {}),
               "residual has shape [8]");
}

}  // namespace
}  // namespace deepspeed::kernels
