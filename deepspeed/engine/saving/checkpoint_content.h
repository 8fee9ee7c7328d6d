// What the files of a checkpoint hold, collected from the engine's state.
#pragma once

#include "deepspeed/checkpoint/archive/deferred_tensors.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/optimizer_states.h"
#include "deepspeed/engine/saving/checkpoint_options.h"
#include "deepspeed/engine/saving/training_state.h"

namespace deepspeed {

/// Returns what the model's file of this rank holds. Tensors share the engine's memory or are of `deferred`:
/// they must be written before the engine changes, and is gone.
checkpoint::ModelStates model_states(const TrainingState& state, const SaveOptions& options,
                                     checkpoint::DeferredTensors& deferred);

/// Returns what the optimizer's file of this rank holds at stages 1 to 3. Its tensors are as those of
/// model_states().
checkpoint::ZeroOptimizerStates zero_states(const TrainingState& state,
                                            checkpoint::DeferredTensors& deferred);

}  // namespace deepspeed
