// Reads and writes files asynchronously, several transfers at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/io/queue/aligned_buffer.h"

namespace deepspeed::io {

/// Describes one read or write. The caller keeps memory and file alive until it is done.
struct Transfer {
  enum class Kind { kRead, kWrite };
  Kind kind = Kind::kRead;
  int file = -1;
  char* data = nullptr;
  size_t size = 0;      // bytes
  uint64_t offset = 0;  // in the file
  uint64_t id = 0;      // chosen by the caller
};

struct Completion {
  uint64_t id = 0;
  /// Bytes moved; fewer than requested only at the end of the file or after an error.
  size_t bytes = 0;
  int error = 0;  // errno; 0: none
};

/// Returns whether a transfer that moved only `bytes` may continue. A count that is no multiple of
/// kDirectAlignment means the end of the file.
constexpr bool may_go_on(size_t bytes) { return bytes % kDirectAlignment == 0; }

/// Describes memory that many transfers use. io_uring maps it once for all of them, if the system permits.
struct MemoryRegion {
  char* data = nullptr;
  size_t size = 0;
};

/// Runs transfers. Only one thread may call it. The destructor waits for transfers in progress.
class TransferQueue {
 public:
  virtual ~TransferQueue() = default;

  /// Starts a transfer without waiting for the disk. At most depth() may be in progress.
  void start(const Transfer& transfer) {
    add(transfer);
    submit();
  }
  /// Adds a transfer, which starts with the next submit() or wait(). One system call can start several.
  virtual void add(const Transfer& transfer) = 0;
  virtual void submit() = 0;
  /// Waits until any transfer is complete and returns how it ended. Throws UsageError if none is in progress.
  virtual Completion wait() = 0;
  virtual size_t num_under_way() const = 0;
  virtual size_t depth() const = 0;
};

/// Makes a queue over io_uring if possible, otherwise over threads. The kernel, a container or the build may
/// prevent io_uring.
std::unique_ptr<TransferQueue> make_transfer_queue(size_t depth,
                                                   const std::vector<MemoryRegion>& memory = {});
/// Makes a queue over io_uring, for comparisons. Returns null if the system or the build has no io_uring.
std::unique_ptr<TransferQueue> make_uring_queue(size_t depth, const std::vector<MemoryRegion>& memory = {});
/// Returns why make_uring_queue() returns null here; empty if it returns a queue.
DEEPSPEED_API std::string why_no_uring();
/// Makes a queue over threads, for comparisons.
std::unique_ptr<TransferQueue> make_thread_queue(size_t depth);

}  // namespace deepspeed::io
