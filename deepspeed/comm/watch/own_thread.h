// The threads of the process that call collectives: each has a number, and those beside the program's own say
// so.
#pragma once

#include <cstdint>

namespace deepspeed::comm {

/// Returns the calling thread's number, from 1 on; no other thread of the process ever has it.
int64_t caller_thread();

/// While it lives, the calling thread's waits for collectives do not hold up the program: ranks whose
/// programs wait in other groups are not taken for ranks that wait for each other.
class OwnThread {
 public:
  OwnThread();
  ~OwnThread();
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;

  /// Says whether one lives in the calling thread.
  static bool is_here();
};

}  // namespace deepspeed::comm
