// The transformer layer of deepspeed.ops: its config, which the core checks, and its function.
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/ops/transformer/layer_function.h"
#include "deepspeed/ops/transformer/transformer_config.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"
#include "python/core/objects/json.h"

namespace deepspeed::python {
namespace {

using ops::DeepSpeedTransformerConfig;
using ops::TransformerWeights;

DeepSpeedTransformerConfig layer_config(const py::dict& keys) {
  return DeepSpeedTransformerConfig::from_dict(to_json(keys, "a transformer layer"));
}

at::Tensor run_transformer_layer(const at::Tensor& hidden_states,
                                 const std::optional<at::Tensor>& attention_mask,
                                 const std::vector<at::Tensor>& weights, const py::dict& config,
                                 bool is_training) {
  if (weights.size() != ops::kTransformerWeights.size())
    raise<UsageError>("got ", weights.size(), " weights, expected ", ops::kTransformerWeights.size());
  TransformerWeights named;
  for (size_t i = 0; i < weights.size(); ++i) named.*ops::kTransformerWeights[i].second = weights[i];
  const DeepSpeedTransformerConfig checked = layer_config(config).checked();
  const py::gil_scoped_release without_lock;
  return ops::transformer_layer(hidden_states, attention_mask.value_or(at::Tensor()), named, checked,
                                is_training);
}

}  // namespace

void bind_transformer(py::module_& module) {
  module.def(
      "transformer_config", [](const py::dict& keys) { return from_json(layer_config(keys).to_dict()); },
      "keys"_a, "Returns all keys of a config of a transformer layer.");
  module.def(
      "checked_transformer_config",
      [](const py::dict& keys) { return from_json(layer_config(keys).checked().to_dict()); }, "keys"_a,
      "Does so with what -1 stands for.");
  module.def(
      "read_transformer_config",
      [](const std::string& path) {
        return from_json(DeepSpeedTransformerConfig::from_json_file(path).to_dict());
      },
      "path"_a);
  module.def("transformer_layer", &run_transformer_layer, "hidden_states"_a, "attention_mask"_a, "weights"_a,
             "config"_a, "is_training"_a);
}

}  // namespace deepspeed::python
