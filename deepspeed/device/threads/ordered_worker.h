// A thread that runs pieces of work in order, next to its owner.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

#include "deepspeed/device/threads/core_binding.h"
#include "deepspeed/device/threads/worker_threads.h"

namespace deepspeed::device {

/// Runs added functions one after the other. Functions may be added from any thread.
class OrderedWorker {
 public:
  /// Starts the worker, bound to these processors together with its compute threads.
  explicit OrderedWorker(const Cores& cores);

  /// Runs `work` after everything added before. Once a piece has thrown, later ones are skipped.
  void add(std::function<void()> work);
  /// Waits until everything added is done. Throws what a piece has thrown, every time until forget_error().
  void wait() { wait_for(num_added_); }
  /// Waits until the first `count` pieces ever added are done. Throws like wait().
  void wait_for(int64_t count);
  int64_t num_added() const { return num_added_; }
  /// Waits for all pieces and forgets the error, so that later pieces run again.
  void forget_error() noexcept;

 private:
  void run(const std::function<void()>& work) noexcept;

  std::mutex mutex_;
  std::condition_variable done_;
  std::exception_ptr error_;
  int64_t num_added_ = 0;
  int64_t num_done_ = 0;
  WorkerThreads thread_{1};  // declared last: it must stop before the data that it uses is destroyed
};

}  // namespace deepspeed::device
