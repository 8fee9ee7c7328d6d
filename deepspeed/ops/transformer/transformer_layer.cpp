#include "deepspeed/ops/transformer/transformer_layer.h"

#include <atomic>
#include <cstdint>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/ops/transformer/layer_function.h"

namespace deepspeed::ops {
namespace {

DeepSpeedTransformerConfig completed(const DeepSpeedTransformerConfig& given) {
  static std::atomic<int64_t> next_layer = 0;
  DeepSpeedTransformerConfig config = given.checked();
  if (config.return_tuple) {
    raise<ConfigError>("return_tuple: is for Python; forward() returns the tensor itself, leave it out");
  }
  if (config.layer_id == -1) config.layer_id = next_layer++;
  if (config.local_rank >= 0 && device::num_cuda_devices() > 0) {
    device::set_cuda_device(static_cast<int>(config.local_rank));
  }
  return config;
}

}  // namespace

DeepSpeedTransformerLayer::DeepSpeedTransformerLayer(const DeepSpeedTransformerConfig& config)
    : config_(completed(config)) {
  register_weights();
  draw_weights(*weights_, config_);
}

DeepSpeedTransformerLayer::DeepSpeedTransformerLayer(const DeepSpeedTransformerConfig& config,
                                                     const std::vector<at::Tensor>& initial_weights,
                                                     const std::vector<at::Tensor>& initial_biases)
    : config_(completed(config)) {
  register_weights();
  const TransformerWeights initial = joined_weights(config_, initial_weights, initial_biases);
  const at::NoGradGuard no_grad;
  for (const TransformerWeight& weight : kTransformerWeights)
    (*weights_.*weight.member).copy_(initial.*weight.member);
}

void DeepSpeedTransformerLayer::register_weights() {
  weights_ = std::make_shared<TransformerWeights>();
  for (const TransformerWeight& weight : kTransformerWeights) {
    const auto sizes = sizes_of(weight, config_.hidden_size, config_.intermediate_size);
    *weights_.*weight.member = register_parameter(weight.name, at::empty(sizes, at::kFloat));
  }
}

at::Tensor DeepSpeedTransformerLayer::forward(const at::Tensor& hidden_states,
                                              const at::Tensor& attention_mask) {
  return transformer_layer(hidden_states, attention_mask, *weights_, config_, is_training());
}

}  // namespace deepspeed::ops
