// Collects what the files of a checkpoint hold from the engine's state.
#pragma once

#include "deepspeed/checkpoint/archive/deferred_tensors.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/optimizer_states.h"
#include "deepspeed/engine/saving/checkpoint_options.h"
#include "deepspeed/engine/saving/training_state.h"

namespace deepspeed {

/// Returns the contents of this rank's model file. Tensors share the engine's memory or belong to `deferred`.
/// Write them before the engine changes or is destroyed.
checkpoint::ModelStates model_states(const TrainingState& state, const SaveOptions& options,
                                     checkpoint::DeferredTensors& deferred);

/// Returns the contents of this rank's optimizer file at stages 1 to 3. Its tensors are like those of
/// model_states().
checkpoint::ZeroOptimizerStates zero_states(const TrainingState& state,
                                            checkpoint::DeferredTensors& deferred);

}  // namespace deepspeed
