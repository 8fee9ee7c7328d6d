// Numbers the threads that call collectives, and marks threads that are not the program's own.
#pragma once

#include <cstdint>

namespace deepspeed::comm {

/// Returns the calling thread's number, counting from 1. Numbers are never reused in a process.
int64_t caller_thread();

/// Marks the calling thread: the program goes on while this thread waits for collectives. Without the mark,
/// ranks whose threads wait in different groups could be mistaken for a deadlock.
class OwnThread {
 public:
  OwnThread();
  ~OwnThread();
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;

  /// Returns whether the calling thread is marked.
  static bool is_here();
};

}  // namespace deepspeed::comm
