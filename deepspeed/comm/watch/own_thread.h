// Threads that call collectives beside the program's own say so here.
#pragma once

namespace deepspeed::comm {

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
