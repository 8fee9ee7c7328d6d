#include "deepspeed/comm/watch/caller_thread.h"

#include <atomic>

namespace deepspeed::comm {

int64_t caller_thread() {
  static std::atomic<int64_t> num_threads = 0;
  thread_local const int64_t own = ++num_threads;
  return own;
}

}  // namespace deepspeed::comm
