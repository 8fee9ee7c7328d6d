// A training state holds what an engine trains with and its progress: all that a checkpoint is made of.
// Engines own one and pass it to save_checkpoint() and load_checkpoint(), which do not depend on the engine.
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

/// Counts a training's progress.
struct RunCounters {
  int64_t micro_steps = 0;  // calls of step()
  int64_t global_steps = 0;
  int64_t global_samples = 0;
  int64_t skipped_steps = 0;           // of global_steps, because gradients were not finite
  bool step_applied = false;           // whether the last step() updated the parameters
  int64_t backwards_since_update = 0;  // whose gradients no step has used; checkpoints contain none of them
  int64_t backwards_in_sums = 0;       // those of them outside of no_sync()
  bool dropped_backwards = false;      // zero_grad() has dropped gradients of this window
};

/// Holds the batch sizes of the current accumulation window. Changes to the config apply from the next
/// window.
struct AccumulationWindow {
  int64_t steps = 1;             // gradient_accumulation_steps
  int64_t train_batch_size = 1;  // samples of all ranks
  int64_t first_micro_step = 0;  // micro step from which windows are counted

  /// Returns how many micro steps of the window are done, given the total so far.
  int64_t done(int64_t micro_steps) const { return (micro_steps - first_micro_step) % steps; }
};

struct TrainingState {
  /// Starts the thread for background saves if the config asks for it. Collective.
  explicit TrainingState(EngineParts given);
  ~TrainingState();
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  EngineParts parts;
  RunCounters counters;
  AccumulationWindow window;
  /// Names the embedding weights that checkpoints record as having sparse gradients. The names come from the
  /// config and then, as in DeepSpeed, from the last loaded checkpoint. They do not decide which gradients
  /// are sent as rows: only the config does.
  std::set<std::string> sparse_names;
  std::shared_ptr<LoaderPosition> loader_position;    // of the loader that checkpoints record; null: none
  std::unique_ptr<BackgroundSaver> background_saver;  // null: saves are written at once
  /// Shows other jobs into which directories (the keys) rank 0 has saved.
  std::map<std::string, std::shared_ptr<checkpoint::FolderWriter>> folder_writers;
  bool is_training = true;     // the model is in training mode, set by train()
  bool in_no_sync = false;     // until the scope ends, backwards only add to this rank's gradients
  bool is_destroyed = false;   // destroy() has released the optimizer
  std::string loaded_in_part;  // why a load failed halfway; empty: the state is complete
};

/// Throws UsageError, naming `call`, if a failed load has left parts of a checkpoint.
void require_whole(const TrainingState& state, const char* call);

}  // namespace deepspeed
