// Runs transfers by threads that call pread and pwrite.
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/io/queue/transfer_queue.h"

namespace deepspeed::io {
namespace {

constexpr size_t kMaxThreads = 4;  // they mostly wait for the disk

Completion move_bytes(const Transfer& transfer) {
  Completion completion{transfer.id};
  while (completion.bytes < transfer.size && may_go_on(completion.bytes)) {
    char* data = transfer.data + completion.bytes;
    const size_t size = transfer.size - completion.bytes;
    const auto offset = off_t(transfer.offset + completion.bytes);
    const ssize_t count = transfer.kind == Transfer::Kind::kWrite
                              ? ::pwrite(transfer.file, data, size, offset)
                              : ::pread(transfer.file, data, size, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) completion.error = errno;
    if (count <= 0) break;
    completion.bytes += size_t(count);
  }
  return completion;
}

class ThreadQueue : public TransferQueue {
 public:
  explicit ThreadQueue(size_t depth) : depth_(depth) {}

  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void submit() override {}

  void add(const Transfer& transfer) override {
    if (num_under_way_ >= depth_) raise<UsageError>("more than ", depth_, " transfers are under way");
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(transfer);
    }
    ++num_under_way_;
    if (threads_.size() < std::min(depth_, kMaxThreads)) threads_.emplace_back([this] { serve(); });
    changed_.notify_all();
  }

  Completion wait() override {
    if (num_under_way_ == 0) raise<UsageError>("no transfer is under way");
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !done_.empty(); });
    const Completion completion = done_.front();
    done_.pop_front();
    --num_under_way_;
    return completion;
  }

  size_t num_under_way() const override { return num_under_way_; }
  size_t depth() const override { return depth_; }

 private:
  /// Runs transfers until the queue ends and all added transfers are done.
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopped_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const Transfer transfer = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const Completion completion = move_bytes(transfer);
      lock.lock();
      done_.push_back(completion);
      changed_.notify_all();
    }
  }

  size_t depth_;
  size_t num_under_way_ = 0;  // used only by the calling thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Transfer> waiting_;
  std::deque<Completion> done_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<TransferQueue> make_thread_queue(size_t depth) {
  return std::make_unique<ThreadQueue>(depth);
}

}  // namespace deepspeed::io
