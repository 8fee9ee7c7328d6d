#include "deepspeed/ops/transformer/transformer_layer.h"

#include <atomic>
#include <cmath>
#include <cstdint>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/ops/transformer/layer_function.h"

namespace deepspeed::ops {
namespace {

constexpr size_t kNumInitial = 8;
constexpr size_t kFirstOwn = 3;  // queries, keys and values become one

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

void copy_into(at::Tensor& parameter, const at::Tensor& value, const char* name) {
  if (!value.defined() || value.sizes() != parameter.sizes()) {
    raise<UsageError>("the initial value of ", name, ": got ",
                      value.defined() ? message("sizes ", value.sizes()) : "no tensor", ", expected sizes ",
                      parameter.sizes());
  }
  parameter.copy_(value);
}

}  // namespace

DeepSpeedTransformerLayer::DeepSpeedTransformerLayer(const DeepSpeedTransformerConfig& config)
    : config_(completed(config)) {
  register_weights();
  draw_weights();
}

DeepSpeedTransformerLayer::DeepSpeedTransformerLayer(const DeepSpeedTransformerConfig& config,
                                                     const std::vector<at::Tensor>& initial_weights,
                                                     const std::vector<at::Tensor>& initial_biases)
    : config_(completed(config)) {
  register_weights();
  copy_weights(initial_weights, initial_biases);
}

void DeepSpeedTransformerLayer::register_weights() {
  const int64_t hidden = config_.hidden_size, inter = config_.intermediate_size;
  const auto add = [&](const char* name, at::IntArrayRef sizes) {
    register_parameter(name, at::empty(sizes, at::kFloat));
  };
  add("attn_qkvw", {3 * hidden, hidden});
  add("attn_qkvb", {3 * hidden});
  add("attn_ow", {hidden, hidden});
  add("attn_ob", {hidden});
  add("attn_nw", {hidden});
  add("attn_nb", {hidden});
  add("inter_w", {inter, hidden});
  add("inter_b", {inter});
  add("output_w", {hidden, inter});
  add("output_b", {hidden});
  add("norm_w", {hidden});
  add("norm_b", {hidden});
}

void DeepSpeedTransformerLayer::draw_weights() {
  if (!(config_.initializer_range >= 0)) {
    raise<ConfigError>("initializer_range: got ", config_.initializer_range,
                       ", expected the standard deviation of new weights, or initial weights");
  }
  double output_range = config_.initializer_range;
  if (config_.adjust_init_range) {
    if (config_.num_hidden_layers < 1) {
      raise<ConfigError>("num_hidden_layers: got ", config_.num_hidden_layers,
                         ", expected a positive number, or adjust_init_range false");
    }
    output_range /= std::sqrt(2.0 * static_cast<double>(config_.num_hidden_layers));
  }
  const at::NoGradGuard no_grad;
  for (auto& item : named_parameters(/*recurse=*/false)) {
    at::Tensor& parameter = item.value();
    const bool is_norm = item.key() == "attn_nw" || item.key() == "norm_w";
    const bool is_output = item.key() == "attn_ow" || item.key() == "output_w";
    if (parameter.dim() == 2) {
      parameter.normal_(0, is_output ? output_range : config_.initializer_range);
    } else {
      parameter.fill_(is_norm ? 1 : 0);
    }
  }
}

void DeepSpeedTransformerLayer::copy_weights(const std::vector<at::Tensor>& weights,
                                             const std::vector<at::Tensor>& biases) {
  if (weights.size() != kNumInitial || biases.size() != kNumInitial) {
    raise<UsageError>(
        "got ", weights.size(), " initial weights and ", biases.size(), " biases, expected ", kNumInitial,
        " each: of queries, keys, values, attention output, its norm, intermediate, output, norm");
  }
  const at::NoGradGuard no_grad;
  auto own = named_parameters(/*recurse=*/false);
  const int64_t hidden = config_.hidden_size;
  static constexpr const char* names[][2] = {{"attn_ow", "attn_ob"},
                                             {"attn_nw", "attn_nb"},
                                             {"inter_w", "inter_b"},
                                             {"output_w", "output_b"},
                                             {"norm_w", "norm_b"}};
  const auto copy_bias = [](at::Tensor parameter, const at::Tensor& bias, const char* name) {
    if (bias.defined()) return copy_into(parameter, bias, name);
    parameter.zero_();
  };
  for (size_t i = 0; i < kFirstOwn; ++i) {
    const int64_t begin = static_cast<int64_t>(i) * hidden;
    at::Tensor rows = own["attn_qkvw"].narrow(0, begin, hidden);
    copy_into(rows, weights[i], "attn_qkvw");
    copy_bias(own["attn_qkvb"].narrow(0, begin, hidden), biases[i], "attn_qkvb");
  }
  for (size_t i = kFirstOwn; i < kNumInitial; ++i) {
    const auto& [weight, bias] = names[i - kFirstOwn];
    copy_into(own[weight], weights[i], weight);
    copy_bias(own[bias], biases[i], bias);
  }
}

at::Tensor DeepSpeedTransformerLayer::forward(const at::Tensor& hidden_states,
                                              const at::Tensor& attention_mask) {
  TransformerWeights weights;
  const auto own = named_parameters(/*recurse=*/false);
  for (const auto& [name, member] : kTransformerWeights) weights.*member = own[name];
  return transformer_layer(hidden_states, attention_mask, weights, config_, is_training());
}

}  // namespace deepspeed::ops
