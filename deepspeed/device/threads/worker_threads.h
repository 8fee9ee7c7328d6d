// Threads that work off a queue of tasks.
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
  /// Throws UsageError for a count below 1.
  explicit WorkerThreads(int count);
  /// Waits for the tasks that run; those that do not run yet are dropped. The end of the process does so too,
  /// for a few seconds.
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
