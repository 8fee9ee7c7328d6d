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

}  // namespace deepspeed::python
