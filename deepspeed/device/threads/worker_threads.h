// Threads that run tasks from a queue.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace deepspeed {
class ExitHook;
}

namespace deepspeed::device {

class WorkerThreads {
 public:
  /// Starts the threads. Throws UsageError for a count below 1.
  explicit WorkerThreads(int count);
  /// Waits for running tasks; tasks that have not started are dropped. The end of the process does the same,
  /// but waits only a few seconds.
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  /// Adds a task, which must not throw. Tasks start in the order in which they were added.
  void add(std::function<void()> task);

 private:
  void work();
  void stop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  int num_running_ = 0;
  std::vector<std::thread> threads_;
  std::unique_ptr<ExitHook> exit_hook_;
};

}  // namespace deepspeed::device
