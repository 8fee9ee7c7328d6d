// Checks the arguments of a transformer layer. Errors name the layer and the tensor.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/ops/transformer/layer_weights.h"
#include "deepspeed/ops/transformer/transformer_config.h"

namespace deepspeed::ops {

/// Returns how errors name a layer.
std::string layer_name(const DeepSpeedTransformerConfig& config);

/// Throws UsageError for a shape or dtype that transformer_layer() does not take.
void check_states(const at::Tensor& hidden_states, const DeepSpeedTransformerConfig& config);
void check_weights(const at::Tensor& hidden_states, const TransformerWeights& weights,
                   const DeepSpeedTransformerConfig& config);

/// Returns the mask as numbers to add, in float32 or, for float64 states, float64. Undefined stays undefined.
/// Throws UsageError for a wrong shape, dtype or device, and if the mask requires a gradient.
at::Tensor checked_mask(const at::Tensor& mask, const at::Tensor& hidden_states,
                        const DeepSpeedTransformerConfig& config);

}  // namespace deepspeed::ops
