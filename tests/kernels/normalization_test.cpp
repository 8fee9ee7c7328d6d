#include "deepspeed/kernels/ops/normalization.h"

#include <limits>

#include "deepspeed/base/error.h"

#include "tests/kernels/op_case.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

/// Inputs of a norm, and the reference's results in fp64.
struct NormCase {
  NormCase(at::IntArrayRef sizes, at::ScalarType dtype, at::ScalarType parameter_dtype, bool is_rms)
      : rms(is_rms),
        input(at::randn(sizes).add(0.5).to(dtype)),
        residual(at::randn(sizes).to(dtype)),
        weight(at::rand({sizes.back()}).add(0.5).to(parameter_dtype)),
        bias(is_rms ? at::Tensor() : at::randn({sizes.back()}).to(parameter_dtype)),
        grad_output(at::randn(sizes).to(dtype)),
        grad_sum(at::randn(sizes).to(dtype)) {}

  NormalizedRows run() const {
    return rms ? kernels::rms_norm(input, residual, weight, kEps)
               : kernels::layer_norm(input, residual, weight, bias, kEps);
  }
  NormGradients run_backward(const NormalizedRows& rows) const {
    return rms ? rms_norm_backward(grad_output, rows.sum, rows.rstd, weight, grad_sum)
               : layer_norm_backward(grad_output, rows.sum, rows.mean, rows.rstd, weight, bias, grad_sum);
  }

  void check_forward(const NormalizedRows& rows, const std::string& what) const {
    const at::Tensor sum = input.to(at::kDouble) + residual.to(at::kDouble);
    expect_near_reference(rows.sum, sum, 1, what + " sum");
    // The norm is that of the sum as it is stored.
    const at::Tensor x = rows.sum.to(at::kDouble);
    const at::Tensor mean = rms ? at::zeros_like(x).select(-1, 0).unsqueeze(-1) : x.mean(-1, true);
    const at::Tensor rstd = ((x - mean).square().mean(-1, true) + kEps).rsqrt();
    if (!rms) expect_near_reference(rows.mean, mean.squeeze(-1), 16, what + " mean");
    // One column has a variance of 0, and a rstd of 300.
    expect_near_reference(rows.rstd, rstd.squeeze(-1), 16, what + " rstd");
    at::Tensor y = (x - mean) * rstd * weight.to(at::kDouble);
    if (!rms) y = y + bias.to(at::kDouble);
    expect_near_reference(rows.output, y, x.size(-1) == 1 ? 4096 : 64, what + " output");
  }

  void check_backward(const NormalizedRows& rows, const NormGradients& gradients, double slack,
                      const std::string& what) const {
    const at::Tensor x = rows.sum.to(at::kDouble), dy = grad_output.to(at::kDouble),
                     rstd = statistic(rows.rstd);
    const at::Tensor n = (x - (rms ? at::zeros({1}, at::kDouble) : statistic(rows.mean))) * rstd;
    const at::Tensor g = dy * weight.to(at::kDouble);
    at::Tensor dx = g - n * (g * n).mean(-1, true);
    if (!rms) dx = dx - g.mean(-1, true);
    const double row_count = static_cast<double>(x.numel() / x.size(-1));
    expect_near_reference(gradients.input, dx * rstd + grad_sum.to(at::kDouble),
                          x.size(-1) == 1 ? slack * 4096 : slack, what + " input");
    const at::Tensor rows_of = (dy * n).reshape({-1, x.size(-1)}), grads = dy.reshape({-1, x.size(-1)});
    // Sums of up to `row_count` terms of either sign.
    expect_near_reference(gradients.weight, rows_of.sum(0), slack * row_count, what + " weight");
    if (!rms) expect_near_reference(gradients.bias, grads.sum(0), 4 * row_count, what + " bias");
  }

  static at::Tensor statistic(const at::Tensor& tensor) { return tensor.to(at::kDouble).unsqueeze(-1); }

  static constexpr double kEps = 1e-5;
  bool rms;
  at::Tensor input, residual, weight, bias, grad_output, grad_sum;
};

TEST(Norms, AgreeWithAReferenceForEveryDtypeSizeAndInstructionSet) {
  at::manual_seed(1);
  for_each_target([](const std::string& target) {
    for (const auto dtype : kOpDtypes) {
      for (const auto parameter_dtype : {dtype, dtype == at::kDouble ? at::kDouble : at::kFloat}) {
        for (const int64_t columns : kOddSizes) {
          for (const bool rms : {false, true}) {
            const NormCase norm({3, 7, columns}, dtype, parameter_dtype, rms);
            const NormalizedRows rows = norm.run();
            norm.check_forward(rows, target);
            norm.check_backward(rows, norm.run_backward(rows), 64, target);
          }
        }
      }
    }
  });
}

TEST(Norms, TakeStridesAndAddressesThatAreNotAligned) {
  at::manual_seed(2);
  for (const auto dtype : kOpDtypes) {
    for (const auto& other : {&unaligned, &strided}) {
      NormCase norm({5, 3, 67}, dtype, dtype, false);
      const NormalizedRows plain = norm.run();
      const NormGradients plain_gradients = norm.run_backward(plain);
      for (at::Tensor* tensor : {&norm.input, &norm.residual, &norm.grad_output, &norm.grad_sum})
        *tensor = other(*tensor);
      norm.weight = unaligned(norm.weight);
      const NormalizedRows rows = norm.run();
      EXPECT_TRUE(at::equal(rows.output, plain.output));
      const NormGradients gradients = norm.run_backward(rows);
      EXPECT_TRUE(at::equal(gradients.input, plain_gradients.input));
      EXPECT_TRUE(at::equal(gradients.weight, plain_gradients.weight));
    }
  }
}

TEST(Norms, DoNotDependOnTheNumberOfThreads) {
  const NormCase norm({517, 130}, at::kFloat, at::kFloat, false);
  const NormalizedRows rows = norm.run();
  expect_equal_for_threads([&] { return norm.run().output; });
  expect_equal_for_threads([&] { return norm.run_backward(rows).input; });
  expect_equal_for_threads([&] { return norm.run_backward(rows).weight; });
  expect_equal_for_threads([&] { return norm.run_backward(rows).bias; });
}

TEST(Norms, GiveTheGradientsFromOnlyTheOutput) {
  at::manual_seed(3);
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const NormCase norm({4, 9, 65}, dtype, dtype, false);
    const NormalizedRows rows = norm.run();
    const NormGradients gradients = layer_norm_backward_from_output(norm.grad_output, rows.output, rows.rstd,
                                                                    norm.weight, norm.bias, norm.grad_sum);
    norm.check_backward(rows, gradients, 1024, "from output");
  }
  // With 16 bits the output holds the normalized row to its own rounding.
  const NormCase narrow({4, 9, 65}, at::kBFloat16, at::kFloat, false);
  const NormalizedRows rows = narrow.run();
  const NormGradients gradients = layer_norm_backward_from_output(
      narrow.grad_output, rows.output, rows.rstd, narrow.weight, narrow.bias, narrow.grad_sum);
  EXPECT_LT((gradients.input - narrow.run_backward(rows).input).abs().max().item<double>(), 0.1);
}

TEST(Norms, LeaveOutWhatIsNotGiven) {
  const at::Tensor input = at::randn({6, 40}), grad = at::randn({6, 40});
  const NormalizedRows rows = kernels::layer_norm(input, {}, {}, {}, 1e-5);
  EXPECT_TRUE(rows.sum.is_same(input));
  EXPECT_TRUE(at::allclose(rows.output, at::layer_norm(input, {40}, {}, {}, 1e-5), 1e-5, 1e-5));
  const NormGradients gradients = layer_norm_backward(grad, rows.sum, rows.mean, rows.rstd, {}, {});
  EXPECT_FALSE(gradients.weight.defined());
  EXPECT_FALSE(gradients.bias.defined());
  EXPECT_FALSE(kernels::rms_norm(input, {}, {}, 1e-5).mean.defined());
  EXPECT_EQ(kernels::layer_norm(at::zeros({0, 40}), {}, {}, {}, 1e-5).output.sizes(),
            at::IntArrayRef({0, 40}));
}

TEST(Norms, HandNansAndInfinitiesOnAsTorchDoes) {
  at::Tensor input = at::randn({5, 33});
  input[1][3] = std::numeric_limits<float>::quiet_NaN();
  input[2][32] = std::numeric_limits<float>::infinity();
  input[3].zero_();
  const at::Tensor weight = at::rand({33}), bias = at::rand({33});
  const at::Tensor torch = at::layer_norm(input, {33}, weight, bias, 1e-5);
  const at::Tensor own = kernels::layer_norm(input, {}, weight, bias, 1e-5).output;
  EXPECT_TRUE(at::equal(own.isnan(), torch.isnan()));
  EXPECT_TRUE(at::allclose(own, torch, 1e-5, 1e-5, true));
  EXPECT_TRUE(at::equal(kernels::rms_norm(input, {}, weight, 1e-5).output.isnan(),
                        at::rms_norm(input, {33}, weight, 1e-5).isnan()));
}

TEST(Norms, NameTheArgumentThatDoesNotFit) {
  const at::Tensor input = at::zeros({2, 8}), weight = at::ones({8});
  EXPECT_ERROR(UsageError, kernels::layer_norm(at::zeros({2, 8}, at::kLong), {}, {}, {}, 1e-5),
               "input has dtype Long", "expected Float, BFloat16, Half or Double");
  EXPECT_ERROR(UsageError, kernels::layer_norm({}, {}, {}, {}, 1e-5), "input is undefined");
  EXPECT_ERROR(UsageError, kernels::layer_norm(input, at::zeros({2, 7}), {}, {}, 1e-5),
               "residual has shape [2, 7]", "that of input, [2, 8]");
  EXPECT_ERROR(UsageError, kernels::layer_norm(input, {}, at::ones({7}), {}, 1e-5), "weight has shape [7]",
               "expected [8]");
  EXPECT_ERROR(UsageError, kernels::layer_norm(input, {}, at::ones({8}, at::kHalf), {}, 1e-5),
               "weight has dtype Half", "expected Float");
  EXPECT_ERROR(UsageError, kernels::layer_norm(input, {}, weight, {}, -1), "eps is -1");
  EXPECT_ERROR(UsageError, kernels::layer_norm(at::zeros({}), {}, {}, {}, 1e-5),
               "input has shape [], expected a last dimension");
  EXPECT_ERROR(UsageError, layer_norm_backward(input, input, weight, weight, {}, {}), "rstd has shape [8]");
  EXPECT_ERROR(UsageError, layer_norm_backward(at::zeros({2, 9}), input, {}, {}, {}, {}),
               "grad_output has shape [2, 9]");
}

}  // namespace
}  // namespace deepspeed::kernels
