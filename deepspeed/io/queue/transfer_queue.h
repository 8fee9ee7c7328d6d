// Files are read and written beside the caller, several at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/io/queue/aligned_buffer.h"

namespace deepspeed::io {

/// Describes one read or write. Memory and file stay the caller's and must live until it is done.
struct Transfer {
  enum class Kind { kRead, kWrite };
  Kind kind = Kind::kRead;
  int file = -1;
  char* data = nullptr;
  size_t size = 0;      // bytes
  uint64_t offset = 0;  // in the file
  uint64_t id = 0;      // the caller's own number for it
};

struct Completion {
  uint64_t id = 0;
  /// Counts the bytes that were moved: fewer than asked for at the end of a file alone.
  size_t bytes = 0;
  int error = 0;  // of errno; 0: none
};

/// Says whether a transfer that moved so many bytes, fewer than asked for, may have a rest: a count that is
/// not aligned means the end of the file.
constexpr bool may_go_on(size_t bytes) { return bytes % kDirectAlignment == 0; }

/// Names memory that many transfers use. io_uring maps it once for all of them, where the system lets it.
struct MemoryRegion {
  char* data = nullptr;
  size_t size = 0;
};

/// Runs transfers for one thread; the destructor waits for what is under way.
class TransferQueue {
 public:
  virtual ~TransferQueue() = default;

  /// Starts a transfer without waiting for the disk; at most depth() may be under way.
  void start(const Transfer& transfer) {
    add(transfer);
    submit();
  }
  /// Adds a transfer, which starts by the next submit() or wait() at the latest: several start by one system
  /// call.
  virtual void add(const Transfer& transfer) = 0;
  virtual void submit() = 0;
  /// Waits for the next transfer that is done, in any order. Throws UsageError where none is under way.
  virtual Completion wait() = 0;
  virtual size_t num_under_way() const = 0;
  virtual size_t depth() const = 0;
};

/// Makes a queue over io_uring; over threads where the kernel, a container's rules or the build refuse that.
std::unique_ptr<TransferQueue> make_transfer_queue(size_t depth,
                                                   const std::vector<MemoryRegion>& memory = {});
/// Makes a queue over io_uring, for programs that compare the kinds; null where the system or the build has
/// none.
std::unique_ptr<TransferQueue> make_uring_queue(size_t depth, const std::vector<MemoryRegion>& memory = {});
/// Says why make_uring_queue() gives none here; empty where it gives one.
DEEPSPEED_API std::string why_no_uring();
/// Makes a queue over threads, for programs that compare the kinds.
std::unique_ptr<TransferQueue> make_thread_queue(size_t depth);

}  // namespace deepspeed::io
