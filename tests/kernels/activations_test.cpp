#include "deepspeed/kernels/ops/activations.h"

#include <limits>

#include "deepspeed/base/error.h"

#include "tests/kernels/op_case.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

at::Tensor gelu_argument(const at::Tensor& x) { return 0.7978845608028654 * (x + 0.044715 * x.pow(3)); }

at::Tensor gelu_reference(const at::Tensor& x) { return 0.5 * x * (1 + gelu_argument(x).tanh()); }

at::Tensor gelu_derivative_reference(const at::Tensor& x) {
  const at::Tensor tanh = gelu_argument(x).tanh();
  return 0.5 * (1 + tanh) +
         0.5 * x * (1 - tanh.square()) * 0.7978845608028654 * (1 + 3 * 0.044715 * x.square());
}

TEST(BiasGelu, AgreesWithAReferenceForEveryDtypeSizeAndInstructionSet) {
  at::manual_seed(1);
  for_each_target([](const std::string& target) {
    for (const auto dtype : kOpDtypes) {
      for (const int64_t columns : kOddSizes) {
        const auto parameter = columns % 2 == 0 || dtype == at::kDouble ? dtype : at::kFloat;
        const at::Tensor input = at::randn({2, 20, columns}).mul(4).to(dtype);
        const at::Tensor bias = at::randn({columns}).to(parameter), grad = at::randn_like(input);
        const at::Tensor x = wide(input) + wide(bias);
        expect_near_reference(bias_gelu(input, bias), gelu_reference(x), 16, target);
        expect_near_reference(bias_gelu(input, {}), gelu_reference(wide(input)), 16,
                              target + " without bias");
        const BiasGeluGradients gradients = bias_gelu_backward(grad, input, bias);
        const at::Tensor expected = wide(grad) * gelu_derivative_reference(x);
        expect_near_reference(gradients.input, expected, 512, target + " input");
        expect_near_reference(gradients.bias, expected.reshape({-1, columns}).sum(0), 64 * 40,
                              target + " bias");
      }
    }
  });
}

TEST(BiasGelu, TakesEdgesAsTorchDoes) {
  const float inf = std::numeric_limits<float>::infinity();
  const at::Tensor edges = at::tensor({0.0F, -0.0F, inf, -inf, std::numeric_limits<float>::quiet_NaN(), 1e30F,
                                       -1e30F, 100.0F, -100.0F, 9.0F, -9.0F, 1e-30F, -12.0F});
  EXPECT_TRUE(at::allclose(bias_gelu(edges, {}), at::gelu(edges, "tanh"), 1e-5, 1e-6, true));
  const at::Tensor finite = edges.slice(0, 7);
  const at::Tensor grad = at::ones_like(finite);
  EXPECT_TRUE(at::allclose(bias_gelu_backward(grad, finite, {}).input,
                           at::gelu_backward(grad, finite, "tanh"), 1e-5, 1e-5));
}

TEST(BiasGelu, DoesNotDependOnThreadsStridesOrAlignment) {
  const at::Tensor input = at::randn({301, 77}), bias = at::randn({77}), grad = at::randn({301, 77});
  expect_equal_for_threads([&] { return bias_gelu(input, bias); });
  expect_equal_for_threads([&] { return bias_gelu_backward(grad, input, bias).bias; });
  expect_equal_for_threads([&] { return bias_gelu_backward(grad, input, {}).input; });
  const at::Tensor plain = bias_gelu(input, bias);
  EXPECT_TRUE(at::allclose(bias_gelu(strided(input), unaligned(bias)), plain, 0, 0));
  EXPECT_TRUE(at::allclose(bias_gelu(unaligned(input), bias), plain, 1e-6, 1e-6));
}

at::Tensor silu_reference(const at::Tensor& x) { return x / (1 + (-x).exp()); }

TEST(Swiglu, AgreesWithAReferenceForEveryDtypeSizeAndInstructionSet) {
  at::manual_seed(2);
  for_each_target([](const std::string& target) {
    for (const auto dtype : kOpDtypes) {
      for (const int64_t columns : kOddSizes) {
        const at::Tensor both = at::randn({3, 5, 2 * columns}).mul(3).to(dtype);
        const at::Tensor gate = both.narrow(-1, 0, columns), up = both.narrow(-1, columns, columns);
        const at::Tensor grad = at::randn({3, 5, columns}).to(dtype);
        expect_near_reference(swiglu(gate, up), silu_reference(wide(gate)) * wide(up), 16, target);
        const at::Tensor grads = at::empty_like(both);
        const at::Tensor grad_gate = grads.narrow(-1, 0, columns),
                         grad_up = grads.narrow(-1, columns, columns);
        swiglu_backward(grad, gate, up, grad_gate, grad_up);
        const at::Tensor s = 1 / (1 + (-wide(gate)).exp());
        expect_near_reference(grad_gate, wide(grad) * wide(up) * s * (1 + wide(gate) * (1 - s)), 64,
                              target + " gate");
        expect_near_reference(grad_up, wide(grad) * silu_reference(wide(gate)), 16, target + " up");
        // Halves of one tensor are read where they lie, and give what copies do.
        EXPECT_TRUE(at::equal(swiglu(gate, up), swiglu(gate.contiguous(), unaligned(up))));
        EXPECT_TRUE(at::equal(swiglu(gate, up), swiglu(strided(gate), up)));
      }
    }
  });
}

TEST(Swiglu, TakesEdgesAsTorchDoes) {
  const float inf = std::numeric_limits<float>::infinity();
  const at::Tensor gate =
      at::tensor({0.0F, inf, -inf, std::numeric_limits<float>::quiet_NaN(), 200.0F, -200.0F, -90.0F});
  const at::Tensor up = at::full_like(gate, 2.0);
  EXPECT_TRUE(at::allclose(swiglu(gate, up), at::silu(gate) * up, 1e-5, 1e-6, true));
}

TEST(Activations, NameTheArgumentThatDoesNotFit) {
  const at::Tensor input = at::zeros({2, 8});
  EXPECT_ERROR(UsageError, bias_gelu(input.to(at::kInt), {}), "input has dtype Int");
  EXPECT_ERROR(UsageError, bias_gelu(input, at::zeros({2, 8})), "bias has shape [2, 8]", "expected [8]");
  EXPECT_ERROR(UsageError, bias_gelu_backward(at::zeros({3, 8}), input, {}), "grad_output has shape [3, 8]");
  EXPECT_ERROR(UsageError, swiglu(input, at::zeros({2, 9})), "up has shape [2, 9]", "that of gate, [2, 8]");
  EXPECT_ERROR(UsageError, swiglu(input, input.to(at::kHalf)), "up has dtype Half");
  EXPECT_ERROR(UsageError, swiglu_backward(input, input, input, at::zeros({8, 2}).t(), at::empty_like(input)),
               "grad_gate of shape [2, 8] has strides");
}

}  // namespace
}  // namespace deepspeed::kernels
