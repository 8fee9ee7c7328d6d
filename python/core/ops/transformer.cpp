// The transformer layer of deepspeed.ops: its config, which the core checks, its weights and its function.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/ops/transformer/layer_function.h"
#include "deepspeed/ops/transformer/layer_weights.h"
#include "deepspeed/ops/transformer/transformer_config.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"
#include "python/core/objects/json.h"

namespace deepspeed::python {
namespace {

using ops::DeepSpeedTransformerConfig;

DeepSpeedTransformerConfig layer_config(const py::dict& keys) {
  return DeepSpeedTransformerConfig::from_dict(to_json(keys, "a transformer layer"));
}

std::vector<std::pair<std::string, std::vector<int64_t>>> layer_sizes(
    const DeepSpeedTransformerConfig& config) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> sizes;
  for (const ops::TransformerWeight& weight : ops::kTransformerWeights)
    sizes.emplace_back(weight.name, ops::sizes_of(weight, config.hidden_size, config.intermediate_size));
  return sizes;
}

void draw_layer(DeepSpeedTransformerConfig config, const std::vector<at::Tensor>& weights,
                bool adjust_init_range) {
  config.adjust_init_range = adjust_init_range;
  ops::draw_weights(ops::weights_of(weights), config);
}

/// Makes a layer's weights from the eight weights and biases of another implementation. That implementation
/// keeps queries, keys and values apart. None stands for a bias of 0.
std::vector<at::Tensor> join_layer(const DeepSpeedTransformerConfig& config,
                                   const std::vector<at::Tensor>& weights,
                                   const std::vector<std::optional<at::Tensor>>& given) {
  std::vector<at::Tensor> biases;
  for (const std::optional<at::Tensor>& bias : given) biases.push_back(bias.value_or(at::Tensor()));
  return ops::list_of(ops::joined_weights(config, weights, biases));
}

at::Tensor run_layer(const DeepSpeedTransformerConfig& config, const at::Tensor& hidden_states,
                     const std::optional<at::Tensor>& attention_mask, const std::vector<at::Tensor>& weights,
                     bool is_training) {
  return ops::transformer_layer(hidden_states, attention_mask.value_or(at::Tensor()),
                                ops::weights_of(weights), config, is_training);
}

}  // namespace

void bind_transformer(py::module_& module) {
  using Config = DeepSpeedTransformerConfig;
  py::class_<Config>(module, "TransformerConfig", "The config of a transformer layer.")
      .def_static("from_dict", &layer_config, "keys"_a)
      .def_static(
          "from_json_file", [](const std::string& path) { return Config::from_json_file(path); }, "path"_a)
      .def("to_dict", [](const Config& config) { return from_json(config.to_dict()); })
      .def("checked", &Config::checked, "Returns it with what -1 stands for. Raises ConfigError.")
      .def("sizes", &layer_sizes, "Returns the names of the weights with their sizes, in order.")
      .def("draw", &draw_layer, NoGil(), "weights"_a, "adjust_init_range"_a)
      .def("join", &join_layer, NoGil(), "weights"_a, "biases"_a,
           "Returns copies of another implementation's weights.")
      .def("forward", &run_layer, NoGil(), "hidden_states"_a, "attention_mask"_a, "weights"_a,
           "is_training"_a);
}

}  // namespace deepspeed::python
