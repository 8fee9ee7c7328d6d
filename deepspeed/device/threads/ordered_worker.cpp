#include "deepspeed/device/threads/ordered_worker.h"

#include <utility>

namespace deepspeed::device {

OrderedWorker::OrderedWorker(const Cores& cores) {
  thread_.add([cores] { bind_this_thread(cores); });
}

void OrderedWorker::add(std::function<void()> work) {
  ++num_added_;
  thread_.add([this, work = std::move(work)] { run(work); });
}

void OrderedWorker::run(const std::function<void()>& work) noexcept {
  bool is_wanted = true;
  {
    const std::lock_guard lock(mutex_);
    is_wanted = error_ == nullptr;
  }
  std::exception_ptr error;
  try {
    if (is_wanted) work();
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (error) error_ = error;
  ++num_done_;
  done_.notify_all();
}

void OrderedWorker::wait_for(int64_t count) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return num_done_ >= count; });
  if (!error_) return;
  // Work after a failed piece is skipped, so this wait is short. After it, no piece uses the caller's data.
  done_.wait(lock, [&] { return num_done_ == num_added_; });
  std::rethrow_exception(error_);
}

void OrderedWorker::forget_error() noexcept {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return num_done_ == num_added_; });
  error_ = nullptr;
}

}  // namespace deepspeed::device
