// These functions save and load a training, whichever engine it belongs to. What the calls do and throw is
// said at Engine::save_checkpoint() and load_checkpoint().
#pragma once

#include <string>

#include "deepspeed/engine/saving/checkpoint_options.h"

namespace deepspeed {

struct EngineParts;
struct TrainingState;

/// Writes `<directory>/<tag>/...` and then `<directory>/latest`. All ranks call it.
void save_checkpoint(TrainingState& state, const std::string& directory, const SaveOptions& options = {});
/// Reads what save_checkpoint() wrote. All ranks call it. Where it fails while it writes,
/// TrainingState::loaded_in_part says why, until another load has succeeded.
LoadResult load_checkpoint(TrainingState& state, const std::string& directory,
                           const LoadOptions& options = {});
/// Writes the model's weights in their own dtype to one file that torch.load reads, or one for each part of
/// the model where ranks share it out. All ranks call it.
void save_16bit_model(TrainingState& state, const std::string& directory, const std::string& file_name,
                      bool exclude_frozen_parameters);

/// Says in the log which parameter the slices of a layer no longer hold alike, where there is one. All ranks
/// call it.
void warn_of_different_slices(const EngineParts& parts);

}  // namespace deepspeed
