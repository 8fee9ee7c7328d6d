// Fused operators, their modules and the transformer layer: `deepspeed.ops`. deepspeed.h includes it;
// docs/ops.md and docs/transformer_layer.md are the guides.
#pragma once

#include "deepspeed/ops/functional.h"
#include "deepspeed/ops/modules.h"
#include "deepspeed/ops/transformer/transformer_config.h"
#include "deepspeed/ops/transformer/transformer_layer.h"

namespace deepspeed {
using ops::DeepSpeedTransformerConfig;
using ops::DeepSpeedTransformerLayer;
}  // namespace deepspeed
