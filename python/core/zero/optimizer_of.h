// The optimizer of an engine that Python holds: destroy() takes it away, and Python may ask afterwards.
#pragma once

#include "deepspeed/base/error.h"
#include "deepspeed/engine/training_engine.h"

namespace deepspeed::python {

/// Throws UsageError, naming the call, where there is none.
inline zero::ZeroOptimizer& optimizer_of(const TrainingEngine& engine, const char* call) {
  if (engine.optimizer() == nullptr)
    raise<UsageError>(call, ": the engine has no optimizer; none was given, or destroy() gave it back");
  return *engine.optimizer();
}

/// Throws UsageError as well where masters and states are not to be had, as between a step that backward has
/// begun and step().
inline zero::ZeroOptimizer& optimizer_with_states(const TrainingEngine& engine, const char* call) {
  engine.require_states_here(call);
  return optimizer_of(engine, call);
}

}  // namespace deepspeed::python
