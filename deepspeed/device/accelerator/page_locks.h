// Page locks of host memory, a table of the CUDA library.
#pragma once

#include <cstddef>

namespace deepspeed::device {

struct PageLocks {
  static constexpr const char* kName = "deepspeed_cuda_page_locks";

  /// Locks [data, data + bytes) for the copies of all devices. Returns null, or what the driver says.
  const char* (*lock)(void* data, size_t bytes);
  /// Unlocks what begins at `data`, when no copy is under way.
  void (*unlock)(void* data);
};

}  // namespace deepspeed::device
