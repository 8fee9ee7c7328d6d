// A thread that does one piece of work after the other beside its owner.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

#include "deepspeed/device/threads/core_binding.h"
#include "deepspeed/device/threads/worker_threads.h"

namespace deepspeed::device {

/// A worker whose functions are called one after the other, from any threads.
class OrderedWorker {
 public:
  /// Starts the worker, which keeps to the processors, with the threads that it computes with.
  explicit OrderedWorker(const Cores& cores);

  /// Does `work` after all that was added before. Once a piece has thrown, those after it are left out.
  void add(std::function<void()> work);
  /// Waits until all that was added is done. Throws what a piece has thrown, each time until forget_error().
  void wait() { wait_for(num_added_); }
  /// Waits until the first `count` pieces of all that were ever added are done. Throws as wait().
  void wait_for(int64_t count);
  int64_t num_added() const { return num_added_; }
  /// Waits for all pieces, and forgets what was thrown, so that later pieces run again.
  void forget_error() noexcept;

 private:
  void run(const std::function<void()>& work) noexcept;

  std::mutex mutex_;
  std::condition_variable done_;
  std::exception_ptr error_;
  int64_t num_added_ = 0;
  int64_t num_done_ = 0;
  WorkerThreads thread_{1};  // declared last, so that it stops before the data that it uses is destroyed
};

}  // namespace deepspeed::device
