// Copies the future content of files to host memory, so that training continues while they are written.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/device/streams/stream_event.h"

namespace deepspeed::checkpoint {

/// Holds copies of records in host memory. Each take() overwrites the copies of the one before.
class HostSnapshot {
 public:
  /// Returns the bytes that take() would allocate; 0 if its present memory suffices. take() frees that memory
  /// first.
  uint64_t missing_bytes(const std::vector<ArchiveContent>& contents) const;
  /// Replaces the records of `contents` by copies in the snapshot. Copies from a device may still be running
  /// when it returns; finish() waits for them.
  void take(std::vector<ArchiveContent>& contents);
  /// Waits for the copies of take(). Any thread may call it.
  void finish() const { copied_.wait(); }

 private:
  at::Tensor memory_;  // bytes; pinned if records come from a device
  device::StreamEvent copied_;
};

}  // namespace deepspeed::checkpoint
