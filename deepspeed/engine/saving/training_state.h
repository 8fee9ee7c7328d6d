// A training state holds what an engine trains with and how far it has come: all that a checkpoint is made
// of. Engines hold one and hand it to save_checkpoint() and load_checkpoint(), which know no engine.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "deepspeed/engine/assembly/engine_parts.h"
#include "deepspeed/engine/data/sampler.h"
#include "deepspeed/engine/saving/run_counters.h"

namespace deepspeed {

namespace checkpoint {
class FolderWriter;
}
class BackgroundSaver;

struct TrainingState {
  /// Starts the thread that saves beside the training, where the config asks for it. Collective.
  explicit TrainingState(EngineParts given);
  ~TrainingState();
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  EngineParts parts;
  RunCounters counters;
  /// Names the embeddings' weights whose gradients are sparse, by config and, as in DeepSpeed, the
  /// checkpoint that was loaded last. What travels by rows follows the config alone.
  std::set<std::string> sparse_names;
  std::shared_ptr<LoaderPosition> loader_position;    // of the loader that checkpoints follow; null: none
  std::unique_ptr<BackgroundSaver> background_saver;  // null: saves are written at once
  /// Show other jobs into which directories rank 0 has saved.
  std::map<std::string, std::shared_ptr<checkpoint::FolderWriter>> folder_writers;
  bool is_training = true;     // the model is in training mode, as train() has it
  bool in_no_sync = false;     // backwards add to this rank's gradients alone, until the scope ends
  bool is_destroyed = false;   // the optimizer was given back
  std::string loaded_in_part;  // why a load failed while it wrote; empty: the state is whole
};

/// Throws UsageError, naming `call`, where a load that failed has left parts of a checkpoint.
void require_whole(const TrainingState& state, const char* call);

}  // namespace deepspeed
