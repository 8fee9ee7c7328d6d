// Page locks of host memory, a table of the CUDA library.
#pragma once

#include <cstddef>

namespace deepspeed::device {

struct PageLocks {
  static constexpr const char* kName = "deepspeed_cuda_page_locks";

  /// Locks [data, data + bytes) for copies of all devices. Returns null, or the driver's error text.
  const char* (*lock)(void* data, size_t bytes);
  /// Unlocks the block at `data`, while no copy is running.
  void (*unlock)(void* data);
};

}  // namespace deepspeed::device
