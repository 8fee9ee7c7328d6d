// Reads and writes ranges of files asynchronously in blocks, like DeepSpeed's aio_handle. The config's
// section `aio` tunes it.
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
  size_t queue_depth = 8;                // requests in progress per thread
  size_t num_threads = 1;                // each moves a part of every transfer (aio.intra_op_parallelism)
  bool single_submit = false;            // submit each request by its own system call
  bool overlap_events = true;            // false: wait for all requests in progress before starting more
};

class BlockMover;  // moves the ranges of one thread

/// Moves ranges of files on its own threads. Only one thread may call it. The destructor waits for transfers
/// in progress.
class AsyncIo {
 public:
  /// Starts the threads. `memory` lists regions that most transfers use; the system maps them once. Throws
  /// UsageError for options of 0, and for block_bytes that are no multiple of kDirectAlignment.
  explicit AsyncIo(const AsyncIoOptions& options, const std::vector<MemoryRegion>& memory = {});
  ~AsyncIo();
  AsyncIo(const AsyncIo&) = delete;
  AsyncIo& operator=(const AsyncIo&) = delete;

  const AsyncIoOptions& options() const { return options_; }

  /// Starts a transfer of any size and returns its ticket for wait(). The transfer's own id is ignored. Files
  /// opened with O_DIRECT need memory, offset and size in multiples of kDirectAlignment.
  uint64_t start(const Transfer& transfer);
  /// Waits until all parts of a transfer have ended. Returns the bytes moved and the first error. Throws
  /// UsageError for an unknown ticket, and IoError if the queue itself failed.
  Completion wait(uint64_t ticket);

 private:
  AsyncIoOptions options_;
  std::vector<std::unique_ptr<BlockMover>> movers_;
  uint64_t num_started_ = 0;
  std::unordered_map<uint64_t, std::vector<std::future<Completion>>> under_way_;  // by ticket
};

}  // namespace deepspeed::io
