#include "deepspeed/comm/watch/own_thread.h"

#include <atomic>

namespace deepspeed::comm {

int64_t caller_thread() {
  static std::atomic<int64_t> num_threads = 0;
  thread_local const int64_t own = ++num_threads;
  return own;
}

namespace {
thread_local int num_own_threads = 0;
}

OwnThread::OwnThread() { ++num_own_threads; }
OwnThread::~OwnThread() { --num_own_threads; }
bool OwnThread::is_here() { return num_own_threads > 0; }

}  // namespace deepspeed::comm
