// The kinds of passes over a model with partitioned parameters.
#pragma once

namespace deepspeed::zero {

/// Says what an access window is for. Passes of one kind usually use the parameters in one order. kTraining
/// is a forward and its backward in one window; kAny says nothing.
enum class AccessMode { kAny, kTraining, kForward, kBackward, kEvaluation };

}  // namespace deepspeed::zero
