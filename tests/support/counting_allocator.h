// Counts the bytes of CPU tensors that are alive: what a process holds, whatever its own books say.
#pragma once

#include <cstdint>

namespace deepspeed::testing {

/// Takes the place of torch's CPU allocator for as long as the object lives; one at a time. Tensors may
/// outlive it.
class AllocationCounter {
 public:
  AllocationCounter();
  ~AllocationCounter();
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;

  /// Bytes that were allocated since the construction and are still held.
  int64_t live_bytes() const;
  /// The most that was ever held at once.
  int64_t peak_bytes() const;
};

}  // namespace deepspeed::testing
