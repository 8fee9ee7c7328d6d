// Threads make batches ahead of their use, which are handed out in the order in which they were asked for.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "deepspeed/base/export.h"

namespace deepspeed {

namespace device {
class WorkerThreads;
}

/// Makes batches on threads. Throws UsageError for a count below 1.
class DEEPSPEED_API BatchThreads {
 public:
  explicit BatchThreads(int count);
  /// Waits for the batches that are being made.
  ~BatchThreads();
  BatchThreads(const BatchThreads&) = delete;
  BatchThreads& operator=(const BatchThreads&) = delete;
  void add(std::function<void()> task);

 private:
  std::unique_ptr<device::WorkerThreads> threads_;
};

template <class Batch>
class BatchQueue {
 public:
  /// Starts the threads. Holds at most two batches a thread.
  explicit BatchQueue(int num_threads)
      : capacity_(2 * static_cast<size_t>(num_threads)), threads_(num_threads) {}

  bool is_full() const { return ahead_.size() >= capacity_; }
  bool is_empty() const { return ahead_.empty(); }

  void add(std::function<std::shared_ptr<Batch>()> make) {
    auto task = std::make_shared<std::packaged_task<std::shared_ptr<Batch>()>>(std::move(make));
    ahead_.push_back(task->get_future());
    threads_.add([task] { (*task)(); });
  }

  /// Waits for the oldest batch; throws what making it threw.
  std::shared_ptr<Batch> take() {
    std::future<std::shared_ptr<Batch>> first = std::move(ahead_.front());
    ahead_.pop_front();
    return first.get();
  }

  /// Forgets the batches that were not taken.
  void clear() { ahead_.clear(); }

 private:
  size_t capacity_;
  std::deque<std::future<std::shared_ptr<Batch>>> ahead_;
  BatchThreads threads_;
};

}  // namespace deepspeed
