// The base of all pipeline schedules. A schedule is a pure function of three numbers. It says what one stage
// executes in which order, without layers, tensors or processes.
#pragma once

#include "deepspeed/base/export.h"
#include "deepspeed/pipe/schedule/instruction.h"

namespace deepspeed::pipe {

class DEEPSPEED_API PipeSchedule {
 public:
  /// Throws UsageError if there are no micro batches or stages or stage_id is out of range.
  PipeSchedule(int micro_batches, int stages, int stage_id);
  virtual ~PipeSchedule() = default;

  /// Returns the instructions of this stage for one batch. All stages have equally many steps, and may wait
  /// for each other between any two steps.
  virtual Steps steps() const = 0;
  /// Returns how many buffers the instructions of this stage use.
  virtual int num_pipe_buffers() const { return micro_batches_; }

  int stage() const { return stage_id_; }
  int num_stages() const { return stages_; }
  int num_micro_batches() const { return micro_batches_; }
  bool is_first_stage() const { return stage_id_ == 0; }
  bool is_last_stage() const { return stage_id_ == stages_ - 1; }

 protected:
  bool valid_micro_batch(int micro_batch) const { return 0 <= micro_batch && micro_batch < micro_batches_; }
  /// Returns a micro batch's buffer_id in a schedule that uses its buffers in turn.
  int buffer_index(int micro_batch) const { return micro_batch % num_pipe_buffers(); }

 private:
  int micro_batches_;
  int stages_;
  int stage_id_;
};

}  // namespace deepspeed::pipe
