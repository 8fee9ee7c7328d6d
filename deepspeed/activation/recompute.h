// Computes a region without keeping its activations: the first of them that backward wants computes the
// region again, from its inputs. Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "deepspeed/activation/region_inputs.h"
#include "deepspeed/base/export.h"

namespace deepspeed::checkpointing {

using TensorFunction = std::function<Tensors(const Tensors&)>;

struct RecomputeOptions {
  std::shared_ptr<const Keeping> keeping;  // null: inputs are kept as they are
  bool keeps_results = false;              // of operators_to_keep()
};

/// Runs `function` on the inputs. Gradients are those of a plain run bit for bit: random numbers, autocast
/// and parameters are as they were. Inputs may be undefined; they need no gradient. `function` must not hold
/// on to the inputs, computes the same each time, and may itself recompute regions. Without gradients it is
/// just called.
DEEPSPEED_API Tensors recompute(const TensorFunction& function, const Tensors& inputs,
                                const RecomputeOptions& options = {});

}  // namespace deepspeed::checkpointing
