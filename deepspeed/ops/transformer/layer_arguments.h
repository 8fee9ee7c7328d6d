// Checks what a transformer layer is given, so that errors name the layer and the tensor.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/ops/transformer/layer_function.h"

namespace deepspeed::ops {

/// Names a layer in errors.
std::string layer_name(const DeepSpeedTransformerConfig& config);

/// Throws UsageError for another shape or dtype than transformer_layer() takes.
void check_states(const at::Tensor& hidden_states, const DeepSpeedTransformerConfig& config);
void check_weights(const at::Tensor& hidden_states, const TransformerWeights& weights,
                   const DeepSpeedTransformerConfig& config);

/// Returns the mask as numbers in the type of the scores' arithmetic, undefined where there is none. Throws
/// UsageError.
at::Tensor checked_mask(const at::Tensor& mask, const at::Tensor& hidden_states,
                        const DeepSpeedTransformerConfig& config);

}  // namespace deepspeed::ops
