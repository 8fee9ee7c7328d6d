// Why a step is skipped: which gradient is not finite, and where it became so.
#pragma once

#include <string>

namespace deepspeed::zero {

class GradReducer;
class ParamStore;
class ZeroState;
struct ZeroGroups;

/// Names a parameter whose gradient is not finite, the nearest to the loss, and the rank on which it is so
/// before the ranks' gradients are summed, or says that their sum alone is not. The same text on all ranks,
/// which all call it: what is not finite on other ranks of the model is named here as well.
/// keeps_gradients: each rank has its own gradients alone, and no sum.
std::string non_finite_cause(const ParamStore& store, const ZeroState& state, const GradReducer& reducer,
                             const ZeroGroups& ranks, bool keeps_gradients);

}  // namespace deepspeed::zero
