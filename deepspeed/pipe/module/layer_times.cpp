#include "deepspeed/pipe/module/layer_times.h"

#include <algorithm>
#include <chrono>

#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "deepspeed/device/accelerator/rng.h"

namespace deepspeed::pipe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 3;  // the first warms up; the fastest of the others counts

Tensors as_leaves(const Tensors& values) {
  Tensors leaves;
  for (const at::Tensor& value : values) {
    at::Tensor leaf = value.defined() ? value.detach() : value;
    if (leaf.defined() && leaf.is_floating_point()) leaf.requires_grad_();
    leaves.push_back(leaf);
  }
  return leaves;
}

// Runs forward and backward once. Returns the outputs.
Tensors run_once(const Layer& layer, const Tensors& inputs) {
  const Tensors outputs = layer.forward(as_leaves(inputs));
  torch::autograd::variable_list roots, gradients;
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    roots.push_back(output);
    gradients.push_back(at::ones_like(output));
  }
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
  return outputs;
}

}  // namespace

std::vector<double> time_layers(const std::vector<LayerSpec>& specs, const Tensors& inputs) {
  const device::SeededScope scope(0);
  std::vector<double> times;
  Tensors values = inputs;
  for (const LayerSpec& spec : specs) {
    const Layer layer = spec.build();
    double best = 0;
    Tensors outputs;
    for (int round = 0; round < kRounds; ++round) {
      const auto begin = Clock::now();
      outputs = run_once(layer, values);
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      if (round > 0) best = round == 1 ? seconds : std::min(best, seconds);
    }
    for (const NamedTensor& param : layer.model.parameters) param.tensor.mutable_grad().reset();
    times.push_back(best);
    values = outputs;
    for (at::Tensor& value : values) {
      if (value.defined()) value = value.detach();
    }
  }
  return times;
}

}  // namespace deepspeed::pipe
