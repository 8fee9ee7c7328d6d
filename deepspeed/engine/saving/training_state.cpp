#include "deepspeed/engine/saving/training_state.h"

#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/tag/folder_writers.h"
#include "deepspeed/engine/saving/background_saver.h"

namespace deepspeed {

TrainingState::TrainingState(EngineParts given) : parts(std::move(given)) {
  const auto& writer = parts.config.checkpoint.writer;
  if (writer && writer->decoupled)
    background_saver = std::make_unique<BackgroundSaver>(parts.world, parts.groups.all);
}

TrainingState::~TrainingState() = default;

void require_whole(const TrainingState& state, const char* call) {
  if (state.loaded_in_part.empty()) return;
  raise<UsageError>(
      call, "(): the engine holds parts of a checkpoint, since load_checkpoint() failed while it wrote: ",
      state.loaded_in_part,
      "; load a checkpoint with its optimizer states, or build the model and its engine anew");
}

}  // namespace deepspeed
