// Whole ranges of files are read and written beside the caller, in blocks: this is what DeepSpeed's
// aio_handle is for. Its tuning is that of the config's section `aio`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <unordered_map>
#include <vector>

#include "deepspeed/io/queue/transfer_queue.h"

namespace deepspeed::io {

struct AsyncIoOptions {
  size_t block_bytes = size_t{1} << 20;  // of one request; a multiple of kDirectAlignment
  size_t queue_depth = 8;                // requests under way, of each thread
  size_t num_threads = 1;                // each moves a part of every range (intra_op_parallelism)
  bool single_submit = false;            // each request by a system call of its own
  bool overlap_events = true;            // false: queue_depth requests are done before the next ones start
};

class BlockMover;

/// Moves ranges for one thread; the destructor waits for what is under way.
class AsyncIo {
 public:
  /// Starts the threads. memory: what most transfers will use, which is registered with the system. Throws
  /// UsageError for options of 0.
  explicit AsyncIo(const AsyncIoOptions& options, const std::vector<MemoryRegion>& memory = {});
  ~AsyncIo();
  AsyncIo(const AsyncIo&) = delete;
  AsyncIo& operator=(const AsyncIo&) = delete;

  const AsyncIoOptions& options() const { return options_; }

  /// Starts a transfer of any size and returns its ticket for wait(); the transfer's own id is not read.
  /// Files that are open with O_DIRECT want memory, offset and size in multiples of kDirectAlignment.
  uint64_t start(const Transfer& transfer);
  /// Waits until all of a transfer was moved or one request failed. Throws UsageError for a ticket that is
  /// not under way, IoError where the queue itself failed.
  Completion wait(uint64_t ticket);

 private:
  AsyncIoOptions options_;
  std::vector<std::unique_ptr<BlockMover>> movers_;
  uint64_t num_started_ = 0;
  std::unordered_map<uint64_t, std::vector<std::future<Completion>>> under_way_;  // by ticket
};

}  // namespace deepspeed::io
