// Runs transfers over io_uring: one system call starts them, and the kernel moves the bytes.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <utility>

#include <liburing.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/io/queue/transfer_queue.h"

namespace deepspeed::io {
namespace {

class UringQueue : public TransferQueue {
 public:
  /// Makes the queue. `memory` was registered with the ring, in this order.
  UringQueue(const io_uring& ring, size_t depth, std::vector<MemoryRegion> memory)
      : ring_(ring), depth_(depth), memory_(std::move(memory)) {}

  ~UringQueue() override {
    try {
      while (!pending_.empty()) wait();
    } catch (const std::exception&) {
      // The ring itself failed; exiting it ends transfers in progress.
    }
    io_uring_queue_exit(&ring_);
  }

  void add(const Transfer& transfer) override {
    if (pending_.size() >= depth_) raise<UsageError>("more than ", depth_, " transfers are under way");
    prepare(transfer);
    pending_[transfer.id] = {transfer, 0};
  }

  void submit() override {
    while (num_prepared_ > 0) {
      const int count = io_uring_submit(&ring_);
      if (count == -EINTR || count == -EAGAIN || count == -EBUSY) continue;
      if (count < 0) raise<IoError>("transfers cannot be started: ", std::strerror(-count));
      num_prepared_ -= std::min(num_prepared_, size_t(count));
    }
  }

  Completion wait() override {
    if (pending_.empty()) raise<UsageError>("no transfer is under way");
    while (true) {
      submit();
      io_uring_cqe* entry = nullptr;
      const int error = io_uring_wait_cqe(&ring_, &entry);
      if (error == -EINTR) continue;
      if (error < 0) raise<IoError>("waiting failed: ", std::strerror(-error));
      const uint64_t id = io_uring_cqe_get_data64(entry);
      const int result = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      const auto found = pending_.find(id);
      if (result == -EINTR || result == -EAGAIN) {
        prepare(rest_of(found->second));
        continue;
      }
      Pending& pending = found->second;
      if (result > 0) pending.done += size_t(result);
      // The kernel may move only a part; the rest continues.
      if (result > 0 && pending.done < pending.transfer.size && may_go_on(pending.done)) {
        prepare(rest_of(pending));
        continue;
      }
      const Completion completion{id, pending.done, result < 0 ? -result : 0};
      pending_.erase(found);
      return completion;
    }
  }

  size_t num_under_way() const override { return pending_.size(); }
  size_t depth() const override { return depth_; }

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

  /// Returns the index in memory_ of the region with the transfer's memory; -1 without one.
  int region_of(const Transfer& transfer) const {
    for (size_t index = 0; index < memory_.size(); ++index) {
      const MemoryRegion& region = memory_[index];
      if (transfer.data >= region.data && transfer.data + transfer.size <= region.data + region.size)
        return int(index);
    }
    return -1;
  }

  void prepare(const Transfer& transfer) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    const auto size = unsigned(transfer.size);
    const int region = region_of(transfer);
    if (transfer.kind == Transfer::Kind::kWrite && region >= 0) {
      io_uring_prep_write_fixed(entry, transfer.file, transfer.data, size, transfer.offset, region);
    } else if (transfer.kind == Transfer::Kind::kWrite) {
      io_uring_prep_write(entry, transfer.file, transfer.data, size, transfer.offset);
    } else if (region >= 0) {
      io_uring_prep_read_fixed(entry, transfer.file, transfer.data, size, transfer.offset, region);
    } else {
      io_uring_prep_read(entry, transfer.file, transfer.data, size, transfer.offset);
    }
    io_uring_sqe_set_data64(entry, transfer.id);
    ++num_prepared_;
  }

  io_uring ring_;
  size_t depth_;
  std::vector<MemoryRegion> memory_;
  size_t num_prepared_ = 0;                        // prepared but not submitted
  std::unordered_map<uint64_t, Pending> pending_;  // by id
};

/// Registers the memory with the ring. Returns false if the system refuses, since containers may limit locked
/// memory.
bool register_memory(io_uring& ring, const std::vector<MemoryRegion>& memory) {
  std::vector<iovec> buffers;
  for (const MemoryRegion& region : memory) buffers.push_back({region.data, region.size});
  return !buffers.empty() && io_uring_register_buffers(&ring, buffers.data(), unsigned(buffers.size())) == 0;
}

}  // namespace

std::string why_no_uring() {
  io_uring ring{};
  const int result = io_uring_queue_init(1, &ring, 0);
  if (result < 0) return message("this system or its container refuses it, ", std::strerror(-result));
  io_uring_queue_exit(&ring);
  return "";
}

std::unique_ptr<TransferQueue> make_uring_queue(size_t depth, const std::vector<MemoryRegion>& memory) {
  io_uring ring{};
  if (io_uring_queue_init(unsigned(depth), &ring, 0) < 0) return nullptr;
  const bool is_registered = register_memory(ring, memory);
  return std::make_unique<UringQueue>(ring, depth, is_registered ? memory : std::vector<MemoryRegion>());
}

}  // namespace deepspeed::io
