// Recomputation on first use: autograd's nodes keep nothing of a region. The first node that needs a tensor
// makes the forward run again.
#pragma once

#include "deepspeed/activation/recompute/region.h"

namespace deepspeed::activation {

/// Runs the function. The tensors that its autograd nodes save are recomputed when backward needs them.
/// Throws UsageError in backward if the function then saves other tensors.
TensorList run_with_recomputation(TensorFunction function, const TensorList& inputs, RegionOptions options);

}  // namespace deepspeed::activation
