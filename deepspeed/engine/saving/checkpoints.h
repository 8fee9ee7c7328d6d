// Saves and loads a training, independent of the kind of engine. Engine::save_checkpoint() and
// load_checkpoint() document what the calls do and throw.
#pragma once

#include <string>

#include "deepspeed/engine/saving/checkpoint_options.h"

namespace deepspeed {

struct EngineParts;
struct TrainingState;

/// Writes `<directory>/<tag>/...` and then `<directory>/latest`. Collective.
void save_checkpoint(TrainingState& state, const std::string& directory, const SaveOptions& options = {});
/// Reads what save_checkpoint() wrote. Collective. If it fails while changing the engine,
/// TrainingState::loaded_in_part holds the reason until a load succeeds.
LoadResult load_checkpoint(TrainingState& state, const std::string& directory,
                           const LoadOptions& options = {});
/// Writes the model's weights in their own dtype to one file that torch.load reads. If ranks divide the
/// model, each part gets a file. Collective.
void save_16bit_model(TrainingState& state, const std::string& directory, const std::string& file_name,
                      bool exclude_frozen_parameters);

/// Warns of the first parameter whose copies on the slices of a layer differ. Slices are the ranks that
/// divide the layer. Collective.
void warn_of_different_slices(const EngineParts& parts);

}  // namespace deepspeed
