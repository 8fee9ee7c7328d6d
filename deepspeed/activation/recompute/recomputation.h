// Recomputation on first use: autograd's nodes keep nothing of a region. The first node that needs a tensor
// makes the forward run again.
#pragma once

#include "deepspeed/activation/recompute/region.h"
#include "deepspeed/autograd/saved_tensors.h"

namespace deepspeed::activation {

/// Runs the function. The tensors that its autograd nodes save are recomputed when backward needs them.
/// Throws UsageError in backward if the function then saves other tensors.
TensorList run_with_recomputation(TensorFunction function, const TensorList& inputs, RegionOptions options);

/// Returns whether the hooks belong to a region of run_with_recomputation(). They keep no value, or only one that backward
/// needs now.
bool keeps_no_values(const autograd::SavedTensorHooks* hooks);

}  // namespace deepspeed::activation
