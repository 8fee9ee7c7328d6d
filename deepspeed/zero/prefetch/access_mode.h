// The kinds of passes over a model that uses partitioned parameters.
#pragma once

namespace deepspeed::zero {

/// What an access window is for: passes of one kind use the parameters in one order, as a rule. kTraining is
/// a forward and its backward in one window; kAny says nothing.
enum class AccessMode { kAny, kTraining, kForward, kBackward, kEvaluation };

}  // namespace deepspeed::zero
