// The checkpoints of a run, which know the model that they are of.
#pragma once

#include <string>

#include <deepspeed/engine/training_engine.h>

#include "model_file.h"
#include "options.h"

namespace gpt2 {

/// Saves a checkpoint into a folder, and beside it the model's description. All ranks call it.
void save(deepspeed::TrainingEngine& engine, const std::string& folder, const ModelFile& model);

/// Loads the checkpoint that the options name, and says which. Throws deepspeed::CheckpointError where there
/// is none, or one of another model or text. All ranks call it.
std::string resume(deepspeed::TrainingEngine& engine, const Options& options, const ModelFile& model);

}  // namespace gpt2
