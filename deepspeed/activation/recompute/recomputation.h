// Recomputation on first use: autograd's nodes keep nothing of a region, and the first of them that needs a
// tensor makes the forward run again.
#pragma once

#include "deepspeed/activation/recompute/region.h"
#include "deepspeed/autograd/saved_tensors.h"

namespace deepspeed::activation {

/// Runs the function on the inputs; what its nodes save is computed again when backward needs it. Throws
/// UsageError in backward where the function then saves other tensors than it did.
TensorList run_with_recomputation(TensorFunction function, const TensorList& inputs, RegionOptions options);

/// Whether the hooks are those of a region: they keep no value, or one that backward needs now anyway.
bool keeps_no_values(const autograd::SavedTensorHooks* hooks);

}  // namespace deepspeed::activation
