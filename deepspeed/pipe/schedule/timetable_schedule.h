// Makes instructions of a row of a timetable: what is received and loaded before a pass, what is sent after
// it and which buffers hold it.
#pragma once

#include "deepspeed/pipe/schedule/pipe_schedule.h"
#include "deepspeed/pipe/schedule/timetable.h"

namespace deepspeed::pipe {

/// The other end of a send or receive: a stage, and the chunk there that has sent or will use the tensors.
struct Peer {
  int stage;
  int model_chunk;

  bool operator==(const Peer&) const = default;
};

/// Returns whom a send or receive of `stage` concerns. The last stage's activations go on to the next chunk
/// of the first stage, and gradients back. Throws UsageError for other instructions.
DEEPSPEED_API Peer peer_of(const Instruction& instruction, int stage, int stages);

/// A schedule whose timetable says what is computed when. Each pass is preceded by its receive and followed,
/// in the same step, by its send, which must not block. The lowest free buffer is taken for each micro batch
/// of each chunk, and given back after its backward.
class DEEPSPEED_API TimetableSchedule : public PipeSchedule {
 public:
  /// Throws UsageError as PipeSchedule does.
  TimetableSchedule(int micro_batches, int stages, int stage_id, int model_chunks);
  Steps steps() const override;
  int num_pipe_buffers() const override;
  int num_model_chunks() const { return shape_.model_chunks; }

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
