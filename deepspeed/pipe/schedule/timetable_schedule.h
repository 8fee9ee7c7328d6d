// Makes instructions from a row of a timetable: receives and loads before a pass, sends after it, and the
// buffers that hold the tensors.
#pragma once

#include "deepspeed/pipe/schedule/pipe_schedule.h"
#include "deepspeed/pipe/schedule/timetable.h"

namespace deepspeed::pipe {

/// Names the other end of a send or receive. The other end is a stage, and the chunk on it that sends or uses
/// the tensors.
struct Peer {
  int stage;
  int model_chunk;

  bool operator==(const Peer&) const = default;
};

/// Returns the other end of a send or receive of `stage`. The last stage's activations go to the next chunk
/// of the first stage, and gradients go back. Throws UsageError for other instructions.
DEEPSPEED_API Peer peer_of(const Instruction& instruction, int stage, int stages);

/// Makes a schedule from a timetable. Each pass is preceded by its receive and followed, in the same step, by
/// its send, which must not block. Each micro batch of each chunk takes the lowest free buffer and frees it
/// after its backward.
class DEEPSPEED_API TimetableSchedule : public PipeSchedule {
 public:
  /// Throws UsageError as PipeSchedule does.
  TimetableSchedule(int micro_batches, int stages, int stage_id, int model_chunks);
  Steps steps() const override;
  int num_pipe_buffers() const override;

 protected:
  const PipeShape& shape() const { return shape_; }
  /// Returns the timetable of all stages.
  virtual Timetable timetable() const = 0;

 private:
  TimetableRow row() const;
  std::vector<Instruction> instructions_of(const Pass& pass, int buffer) const;
  PipeShape shape_;
};

}  // namespace deepspeed::pipe
