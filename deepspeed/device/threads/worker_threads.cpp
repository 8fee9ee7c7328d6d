#include "deepspeed/device/threads/worker_threads.h"

#include <chrono>
#include <utility>

#include <ATen/Parallel.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/threads/exit_hook.h"

namespace deepspeed::device {
namespace {

// Limits the wait at exit: a hanging task must not keep the process alive.
constexpr std::chrono::seconds kEndLimit(5);

}  // namespace

WorkerThreads::WorkerThreads(int count) {
  if (count < 1) raise<UsageError>("expected at least one thread, got ", count);
  for (int i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
  at::get_num_threads();  // makes torch's thread pool, a static that must outlive the hook
  exit_hook_ = std::make_unique<ExitHook>([this] {
    stop();
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kEndLimit, [this] { return num_running_ == 0; });
  });
}

void WorkerThreads::stop() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  tasks_.clear();
  changed_.notify_all();
}

WorkerThreads::~WorkerThreads() {
  exit_hook_ = nullptr;
  stop();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerThreads::add(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void WorkerThreads::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
    if (ending_) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    ++num_running_;
    lock.unlock();
    task();
    lock.lock();
    --num_running_;
    if (ending_) changed_.notify_all();
  }
}

}  // namespace deepspeed::device
