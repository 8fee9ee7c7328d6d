// Finds the optimizer of an engine that Python holds. destroy() releases it, but Python may still ask for it.
#pragma once

#include "deepspeed/base/error.h"
#include "deepspeed/engine/training_engine.h"

namespace deepspeed::python {

/// Returns the engine's optimizer. Throws UsageError, naming the call, if there is none.
inline zero::ZeroOptimizer& optimizer_of(const TrainingEngine& engine, const char* call) {
  if (engine.optimizer() == nullptr)
    raise<UsageError>(call, ": the engine has no optimizer; none was given, or destroy() gave it back");
  return *engine.optimizer();
}

/// Returns what optimizer_of() does, but also throws UsageError while the states are unusable. This is so,
/// for example, between offload_states() and reload_states().
inline zero::ZeroOptimizer& optimizer_with_states(const TrainingEngine& engine, const char* call) {
  engine.require_states_here(call);
  return optimizer_of(engine, call);
}

}  // namespace deepspeed::python
