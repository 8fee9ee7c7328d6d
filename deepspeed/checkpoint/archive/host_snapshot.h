// A snapshot copies what files will hold to host memory: training goes on while it is written.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/device/streams/stream_event.h"

namespace deepspeed::checkpoint {

/// Holds the copies. Their memory is kept for the next snapshot, which overwrites this one.
class HostSnapshot {
 public:
  /// Returns the bytes of host memory that a snapshot of `contents` takes beyond what is held already.
  uint64_t missing_bytes(const std::vector<ArchiveContent>& contents) const;
  /// Copies the records and puts the copies in their place. Copies from a device may be on their way when it
  /// returns: finish() waits for them.
  void take(std::vector<ArchiveContent>& contents);
  /// Waits for the copies of take(). Any thread may call it.
  void finish() const { copied_.wait(); }

 private:
  at::Tensor memory_;  // bytes; pinned where records come from a device
  device::StreamEvent copied_;
};

}  // namespace deepspeed::checkpoint
