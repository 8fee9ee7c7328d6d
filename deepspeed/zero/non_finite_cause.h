// Explains why a step is skipped: which gradient is not finite, and on which rank.
#pragma once

#include <string>

namespace deepspeed::zero {

class GradReducer;
class ParamStore;
class ZeroState;
struct ZeroGroups;

/// Returns a text that names the parameter nearest to the loss whose gradient is not finite. The text says on
/// which rank the gradient is non-finite before the sum over ranks, or that only the sum is. All ranks get
/// the same text, also about gradients on other ranks of the model. Collective. keeps_gradients: each rank
/// has only its own gradients and no sum.
std::string non_finite_cause(const ParamStore& store, const ZeroState& state, const GradReducer& reducer,
                             const ZeroGroups& ranks, bool keeps_gradients);

}  // namespace deepspeed::zero
