// A training state holds what an engine trains with and how far it has come: all that a checkpoint is made
// of. Engines hold one and hand it to save_checkpoint() and load_checkpoint(), which know no engine.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "deepspeed/engine/assembly/engine_parts.h"
#include "deepspeed/engine/data/sampler.h"

namespace deepspeed {

namespace checkpoint {
class FolderWriter;
}
class BackgroundSaver;

/// Says how far a training has come.
struct RunCounters {
  int64_t micro_steps = 0;  // calls of step()
  int64_t global_steps = 0;
  int64_t global_samples = 0;
  int64_t skipped_steps = 0;           // of global_steps, for gradients that were not finite
  bool step_applied = false;           // whether the last call of step() updated the parameters
  int64_t backwards_since_update = 0;  // whose gradients no step has used; checkpoints hold none of them
  int64_t backwards_in_sums = 0;       // of these, where no_sync() did not hold
  bool dropped_backwards = false;      // zero_grad() has given up those of this window
};

/// The batch of the window of gradient accumulation under way. A setter of the config acts on the next one.
struct AccumulationWindow {
  int64_t steps = 1;             // gradient_accumulation_steps
  int64_t train_batch_size = 1;  // samples of all ranks
  int64_t first_micro_step = 0;  // from which windows of so many steps are counted

  /// Returns how many micro steps of the window are done, of so many in all.
  int64_t done(int64_t micro_steps) const { return (micro_steps - first_micro_step) % steps; }
};

struct TrainingState {
  /// Starts the thread that saves beside the training, where the config asks for it. Collective.
  explicit TrainingState(EngineParts given);
  ~TrainingState();
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  EngineParts parts;
  RunCounters counters;
  AccumulationWindow window;
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
