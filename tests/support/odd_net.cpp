#include "tests/support/odd_net.h"

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include "tests/support/test_device.h"

namespace deepspeed::testing {
namespace {

void fill(const at::Tensor& tensor, double phase, double size) {
  const c10::NoGradGuard no_grad;
  float* values = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<float>(size * std::sin(phase + 1.7 * static_cast<double>(i)));
  }
}

}  // namespace

OddNet::OddNet(double dropout, uint64_t seed) {
  first_ = register_module("first", torch::nn::Linear(7, 13));
  norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({13})));
  shared_ = register_module("shared", torch::nn::Linear(13, 13));
  last_ = register_module("last", torch::nn::Linear(13, 5));
  dropout_ = register_module("dropout", torch::nn::Dropout(dropout));
  gain_ = register_parameter("gain", at::ones({1}));
  frozen_ = register_parameter("frozen", at::full({5}, 0.25), /*requires_grad=*/false);
  unused_ = register_parameter("unused", at::ones({3}));
  register_buffer("counter", at::full({2}, 3.0));
  double phase = static_cast<double>(seed);
  for (const auto& layer : {first_, shared_, last_}) {
    fill(layer->weight, phase += 0.9, 0.4);
    fill(layer->bias, phase += 0.9, 0.1);
  }
}

at::Tensor OddNet::forward(const at::Tensor& inputs, const at::Tensor& targets) {
  at::Tensor hidden = norm_->forward(first_->forward(inputs));
  hidden = dropout_->forward(at::gelu(shared_->forward(hidden)));
  hidden = at::gelu(shared_->forward(hidden));
  const at::Tensor output = last_->forward(hidden).mul(gain_).add(frozen_);
  return at::mse_loss(output, targets.to(output.scalar_type()));
}

std::pair<at::Tensor, at::Tensor> odd_sample(int64_t index) {
  const at::Tensor inputs = at::empty({7});
  const at::Tensor targets = at::empty({5});
  fill(inputs, 0.3 * static_cast<double>(index % 1000), 1.0);
  fill(targets, 2.0 + 0.7 * static_cast<double>(index % 1000), 1.0);
  return {inputs, targets};
}

std::pair<at::Tensor, at::Tensor> odd_batch(int64_t first, int64_t count) {
  std::vector<at::Tensor> inputs, targets;
  for (int64_t i = 0; i < count; ++i) {
    auto [input, target] = odd_sample(first + i);
    inputs.push_back(std::move(input));
    targets.push_back(std::move(target));
  }
  return {at::stack(inputs).to(test_device()), at::stack(targets).to(test_device())};
}

}  // namespace deepspeed::testing
