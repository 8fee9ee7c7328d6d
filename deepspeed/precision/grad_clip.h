// What gradients are multiplied by before the optimizer sees them: the inverse loss scale and the clipping in
// one.
#pragma once

namespace deepspeed::precision {

/// Returns 1 / (loss_scale * max(1, (norm / loss_scale + 1e-6) / clip)). norm: of the gradients as they are,
/// loss scale included; loss_scale: the one that they were made with; `clip` 0: no clipping. Throws
/// UsageError for a loss scale that is not positive, a negative clip, or a norm that is negative or no
/// number.
double combined_gradient_scale(double total_norm_of_scaled_grads, double loss_scale, double clip);

}  // namespace deepspeed::precision
