// The fused operators on a CUDA device, forward and backward, against those of the CPU on the same values.
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include "deepspeed/kernels/ops/dropout.h"
#include "deepspeed/kernels/ops/embedding_gradient.h"
#include "deepspeed/ops/functional.h"

#include "tests/cuda/require_cuda.h"

namespace deepspeed::ops {
namespace {

using CudaOps = testing::CudaTest;
using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Tensors&)>;

/// Returns the output and the gradients of all floating inputs, made on a device.
Tensors results_on(const at::Device& device, const Function& function, const Tensors& given) {
  Tensors inputs, learned;
  for (const at::Tensor& tensor : given) {
    inputs.push_back(tensor.to(device));
    if (tensor.is_floating_point()) learned.push_back(inputs.back().set_requires_grad(true));
  }
  const at::Tensor output = function(inputs);
  const at::Tensor weights = at::linspace(-1, 1, output.numel()).view(output.sizes()).to(output.options());
  Tensors results = torch::autograd::grad({output}, learned, {weights});
  results.push_back(output.detach());
  for (at::Tensor& result : results) result = result.cpu();
  return results;
}

void expect_results_of_the_cpu(const std::string& what, const Function& function, const Tensors& inputs) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    Tensors cast;
    for (const at::Tensor& input : inputs)
      cast.push_back(input.is_floating_point() ? input.to(dtype) : input);
    const Tensors cpu = results_on(at::kCPU, function, cast), cuda = results_on(at::kCUDA, function, cast);
    const bool is_narrow = dtype == at::kBFloat16 || dtype == at::kHalf;
    for (size_t i = 0; i < cpu.size(); ++i) {
      // 16-bit results differ by a rounding, sums of them by several.
      const double tolerance = is_narrow ? 0.03 : dtype == at::kFloat ? 1e-4 : 1e-10;
      EXPECT_TRUE(at::allclose(cuda[i], cpu[i], tolerance, tolerance, true))
          << what << " " << dtype << " result " << i;
    }
  }
}

TEST_F(CudaOps, GiveTheResultsOfTheCpu) {
  at::manual_seed(1);
  for (const int64_t n : {7, 130, 2051}) {
    const at::Tensor x = at::randn({5, 3, n}), y = at::randn({5, 3, n}), w = at::rand({n}).add(0.5),
                     b = at::randn({n});
    const auto added = [](const std::pair<at::Tensor, at::Tensor>& both) { return both.first + both.second; };
    expect_results_of_the_cpu("layer_norm",
                              [&](const Tensors& t) { return added(add_layer_norm(t[0], t[1], t[2], t[3])); },
                              {x, y, w, b});
    expect_results_of_the_cpu(
        "rms_norm", [&](const Tensors& t) { return added(add_rms_norm(t[0], t[1], t[2])); }, {x, y, w});
    expect_results_of_the_cpu("bias_gelu", [](const Tensors& t) { return bias_gelu(t[0], t[1]); }, {x, b});
    expect_results_of_the_cpu("gelu", [](const Tensors& t) { return bias_gelu(t[0]); }, {x});
    expect_results_of_the_cpu("swiglu", [](const Tensors& t) { return swiglu(t[0]); },
                              {at::randn({4, 2 * n})});
    expect_results_of_the_cpu("masked_softmax",
                              [](const Tensors& t) { return masked_softmax(t[0], t[1], 0.5); },
                              {at::randn({2, 3, 4, n}), at::randn({2, 1, 1, n})});
    const at::Tensor targets = at::randint(n, {15}, at::kLong);
    expect_results_of_the_cpu("linear_cross_entropy",
                              [](const Tensors& t) {
                                return linear_cross_entropy(t[0], t[1], t[2], {},
                                                            {.label_smoothing = 0.1, .chunk_rows = 4});
                              },
                              {at::randn({15, 8}), at::randn({n, 8}), targets});
    expect_results_of_the_cpu("embedding", [](const Tensors& t) { return ops::embedding(t[0], t[1], 2); },
                              {at::randn({9, n}), at::randint(9, {4, 6}, at::kLong)});
  }
  const auto turned = [](RotaryPairs pairs) {
    return [pairs](const Tensors& t) {
      const auto dtype = t[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      const RotaryTables tables = rotary_tables(6, 8, 10000, t[0].device(), 0, dtype);
      return rotary_embedding(t[0].transpose(1, 2), tables.cos, tables.sin, pairs);
    };
  };
  expect_results_of_the_cpu("rotary halves", turned(RotaryPairs::kHalves), {at::randn({2, 6, 3, 11})});
  expect_results_of_the_cpu("rotary neighbours", turned(RotaryPairs::kNeighbours),
                            {at::randn({2, 6, 3, 11})});
}

// 65536 is infinite in fp16, and 1 / (rows * classes) is 0 there.
TEST_F(CudaOps, BringALossScaleIntoGradientsThatWaitInHalf) {
  constexpr int64_t kRows = 512, kClasses = 8000, kFeatures = 8;
  constexpr double kScale = 65536;
  at::manual_seed(2);
  const at::Tensor hidden = at::randn({kRows, kFeatures}).to(at::kHalf),
                   weight = at::randn({kClasses, kFeatures}).mul_(0.02).add_(0.05).to(at::kHalf);
  const at::Tensor targets = at::randint(kClasses, {kRows}, at::kLong);
  const auto gradients = [&](const at::Device& device, at::ScalarType of_hidden, at::ScalarType of_weight,
                             int64_t chunk_rows = 0) {
    const Tensors inputs{hidden.to(device, of_hidden).set_requires_grad(true),
                         weight.to(device, of_weight).set_requires_grad(true)};
    const at::Tensor loss =
        linear_cross_entropy(inputs[0], inputs[1], targets.to(device), {}, {.chunk_rows = chunk_rows});
    Tensors found;
    for (const bool keeps : {true, false}) {
      found = torch::autograd::grad({loss}, inputs, {at::full({}, kScale, loss.options())}, keeps);
    }
    return found;
  };
  const Tensors exact = gradients(at::kCPU, at::kDouble, at::kDouble);
  for (const auto of_weight : {at::kHalf, at::kFloat}) {
    for (const int64_t chunk_rows : {0, 100}) {
      const Tensors found = gradients(at::kCUDA, at::kHalf, of_weight, chunk_rows);
      for (size_t i = 0; i < found.size(); ++i) {
        const at::Tensor error = found[i].cpu().to(at::kDouble) - exact[i];
        EXPECT_LT((error.norm() / exact[i].norm()).item<double>(), 5e-3)
            << i << " " << of_weight << ", chunks of " << chunk_rows;
      }
    }
  }
}

// Hidden states down to 2^-14 keep their bits in sums over rows whose bound is 2^30 times as large.
TEST_F(CudaOps, KeepSmallHiddenStatesInSumsOverManyRows) {
  constexpr int64_t kRows = 4096, kClasses = 16;
  at::manual_seed(6);
  at::Tensor hidden = at::randn({kRows, 8}).mul_(0x1p-12);
  hidden.select(1, 0).fill_(2000);
  const at::Tensor targets = at::randint(kClasses, {kRows}, at::kLong);
  const auto gradient = [&](const at::Device& device, at::ScalarType dtype, int64_t chunk_rows) {
    const at::Tensor weight = at::zeros({kClasses, 8}, at::TensorOptions(device).dtype(dtype));
    weight.set_requires_grad(true);
    const at::Tensor loss = linear_cross_entropy(hidden.to(at::kHalf).to(device, dtype), weight,
                                                 targets.to(device), {}, {.chunk_rows = chunk_rows});
    const at::Tensor found =
        torch::autograd::grad({loss}, {weight}, {at::full({}, 65536, loss.options())}).front();
    return found.cpu().to(at::kDouble).narrow(1, 1, 7);
  };
  const at::Tensor exact = gradient(at::kCPU, at::kDouble, 0);
  for (const int64_t chunk_rows : {0, 1000}) {
    const at::Tensor error = gradient(at::kCUDA, at::kHalf, chunk_rows) - exact;
    EXPECT_LT((error.norm() / exact.norm()).item<double>(), 5e-3) << chunk_rows;
  }
}

TEST_F(CudaOps, DropTheBitsThatTheCpuDrops) {
  const kernels::Philox philox{0x123456789abcdef0ULL, 12};
  for (const int64_t n : {1, 7, 130, 5001}) {
    const at::Tensor x = at::randn({33, n}), b = at::randn({n}), r = at::randn({33, n});
    const at::Tensor cpu = kernels::bias_dropout_residual(x, b, r, 0.3, philox);
    const at::Tensor cuda = kernels::bias_dropout_residual(x.cuda(), b.cuda(), r.cuda(), 0.3, philox);
    EXPECT_TRUE(at::equal(cuda.cpu(), cpu)) << n;
    const auto back_cpu = kernels::bias_dropout_residual_backward(x, b, 0.3, philox);
    const auto back_cuda = kernels::bias_dropout_residual_backward(x.cuda(), b.cuda(), 0.3, philox);
    EXPECT_TRUE(at::equal(back_cuda.input.cpu(), back_cpu.input)) << n;
    EXPECT_TRUE(at::allclose(back_cuda.bias.cpu(), back_cpu.bias, 1e-4, 1e-4)) << n;
  }
}

TEST_F(CudaOps, DrawFromTheDevicesGenerator) {
  const auto draw = [] { return kernels::next_philox(at::Device(at::kCUDA, 0)); };
  at::manual_seed(3);
  const kernels::Philox first = draw(), second = draw();
  EXPECT_NE(first.offset, second.offset);
  at::manual_seed(3);
  EXPECT_EQ(draw().offset, first.offset);
}

TEST_F(CudaOps, MakeNanOfWhatIsNoRowOrClass) {
  const at::Tensor targets = at::tensor({3, 1}, at::kLong).cuda();
  const at::Tensor losses = linear_cross_entropy(at::ones({2, 4}).cuda(), at::ones({3, 4}).cuda(), targets,
                                                 {}, {.reduction = Reduction::kNone})
                                .cpu();
  EXPECT_TRUE(losses[0].isnan().item<bool>());
  EXPECT_FALSE(losses[1].isnan().item<bool>());
}

}  // namespace
}  // namespace deepspeed::ops
