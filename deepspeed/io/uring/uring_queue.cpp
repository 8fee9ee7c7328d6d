// Transfers over io_uring: one system call starts them, and the kernel moves the bytes.
#include <cerrno>
#include <cstring>
#include <unordered_map>

#include <liburing.h>

#include "deepspeed/base/error.h"
#include "deepspeed/io/transfer_queue.h"

namespace deepspeed::io {
namespace {

constexpr const char* kUringWhere = "io.uring";

class UringQueue : public TransferQueue {
 public:
  UringQueue(const io_uring& ring, size_t depth) : ring_(ring), depth_(depth) {}

  ~UringQueue() override {
    try {
      while (!pending_.empty()) wait();
    } catch (const std::exception&) {
      // The ring itself failed; leaving it ends what is under way.
    }
    io_uring_queue_exit(&ring_);
  }

  void start(const Transfer& transfer) override {
    if (pending_.size() >= depth_)
      raise<UsageError>(kUringWhere, "more than ", depth_, " transfers are under way");
    pending_[transfer.id] = {transfer, 0};
    try {
      submit(transfer);
    } catch (...) {
      pending_.erase(transfer.id);
      throw;
    }
  }

  Completion wait() override {
    if (pending_.empty()) raise<UsageError>(kUringWhere, "no transfer is under way");
    while (true) {
      io_uring_cqe* entry = nullptr;
      const int error = io_uring_wait_cqe(&ring_, &entry);
      if (error == -EINTR) continue;
      if (error < 0) raise<IoError>(kUringWhere, "waiting failed: ", std::strerror(-error));
      const uint64_t id = io_uring_cqe_get_data64(entry);
      const int result = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      const auto found = pending_.find(id);
      if (result == -EINTR || result == -EAGAIN) {
        submit(rest_of(found->second));
        continue;
      }
      Pending& pending = found->second;
      if (result > 0) pending.done += size_t(result);
      // The kernel may move less at once; what is left goes on.
      if (result > 0 && pending.done < pending.transfer.size && may_go_on(pending.done)) {
        submit(rest_of(pending));
        continue;
      }
      const Completion completion{id, pending.done, result < 0 ? -result : 0};
      pending_.erase(found);
      return completion;
    }
  }

  size_t num_under_way() const override { return pending_.size(); }
  size_t depth() const override { return depth_; }
  const char* name() const override { return "io_uring"; }

 private:
  struct Pending {
    Transfer transfer;
    size_t done = 0;
  };

  static Transfer rest_of(const Pending& pending) {
    Transfer rest = pending.transfer;
    rest.data += pending.done;
    rest.size -= pending.done;
    rest.offset += pending.done;
    return rest;
  }

  void submit(const Transfer& transfer) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    const auto size = unsigned(transfer.size);
    if (transfer.kind == Transfer::Kind::kWrite) {
      io_uring_prep_write(entry, transfer.file, transfer.data, size, transfer.offset);
    } else {
      io_uring_prep_read(entry, transfer.file, transfer.data, size, transfer.offset);
    }
    io_uring_sqe_set_data64(entry, transfer.id);
    int count = 0;
    do {
      count = io_uring_submit(&ring_);
    } while (count == -EINTR || count == -EAGAIN || count == -EBUSY);
    if (count < 0) raise<IoError>(kUringWhere, "a transfer cannot be started: ", std::strerror(-count));
  }

  io_uring ring_;
  size_t depth_;
  std::unordered_map<uint64_t, Pending> pending_;  // by id
};

}  // namespace

std::unique_ptr<TransferQueue> make_uring_queue(size_t depth) {
  io_uring ring{};
  if (io_uring_queue_init(unsigned(depth), &ring, 0) < 0) return nullptr;
  return std::make_unique<UringQueue>(ring, depth);
}

}  // namespace deepspeed::io
