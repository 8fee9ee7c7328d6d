// Whether the current micro batch ends a step, and where the loader in use stands.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::accelerate {

/// Says how micro batches make a step.
struct GradientAccumulationPlugin {
  int num_steps = 1;                 ///< micro batches of a step
  bool adjust_scheduler = true;      ///< accepted; a schedule is stepped once a step
  bool sync_with_dataloader = true;  ///< the last batch of a loader ends a step
  bool sync_each_batch = false;      ///< gradients are summed over the ranks at every micro batch
};

/// Tells how far the loop over one loader is.
struct LoaderProgress {
  bool at_end = false;     ///< the batch in use is the last one
  int64_t remainder = -1;  ///< samples in the last batch of all ranks that are no repetition; -1: not known
};

/// Decides at each micro batch whether it ends a step. One Accelerator and its loaders share it.
class DEEPSPEED_API GradientState {
 public:
  explicit GradientState(GradientAccumulationPlugin plugin) : plugin_(plugin) {}

  /// Counts a micro batch and decides whether it ends a step.
  void next_micro_batch();
  bool sync_gradients() const { return sync_gradients_; }
  /// Overrides the decision, until the next micro batch.
  void set_sync_gradients(bool sync) { sync_gradients_ = sync; }
  int num_steps() const { return plugin_.num_steps; }
  void set_num_steps(int num_steps) { plugin_.num_steps = num_steps; }
  int64_t step() const { return step_; }
  void set_step(int64_t step) { step_ = step; }

  /// Begins and ends a loop over a loader. The innermost loop counts.
  void begin(const std::shared_ptr<LoaderProgress>& loader);
  void end(const std::shared_ptr<LoaderProgress>& loader);
  bool end_of_dataloader() const { return !loaders_.empty() && loaders_.back()->at_end; }
  int64_t remainder() const { return loaders_.empty() ? -1 : loaders_.back()->remainder; }

 private:
  GradientAccumulationPlugin plugin_;
  bool sync_gradients_ = true;
  int64_t step_ = 0;
  std::vector<std::shared_ptr<LoaderProgress>> loaders_;
};

}  // namespace deepspeed::accelerate
