// Reads a file past the page cache, with read-ahead for a caller that reads sequentially.
#pragma once

#include <memory>
#include <vector>

#include "deepspeed/io/queue/aligned_buffer.h"
#include "deepspeed/io/queue/transfer_queue.h"

namespace deepspeed::io {

/// Reads one file. Not thread-safe.
class DirectReader {
 public:
  /// Takes ownership of a file opened with O_DIRECT. If `queue` is null, uses the system's best.
  explicit DirectReader(int file, std::unique_ptr<TransferQueue> queue = nullptr);
  ~DirectReader();
  DirectReader(const DirectReader&) = delete;
  DirectReader& operator=(const DirectReader&) = delete;

  /// Reads `size` bytes at `offset`. Returns 0 or an errno, which is ENODATA if the file is shorter.
  int read(uint64_t offset, void* destination, size_t size);
  /// Returns the bytes of memory held between calls.
  static size_t buffer_bytes();

 private:
  struct Slot {
    bool is_reading = false;
    size_t bytes = 0;  // actual size of the block
    int error = 0;
  };

  char* data_of(uint64_t block) const;
  Slot& slot_of(uint64_t block) { return slots_[block % slots_.size()]; }
  void start(uint64_t block);
  void wait_for(const Slot& slot);
  /// Waits for a block and returns its slot. Also starts reads up to block `last_wanted`, and further if
  /// calls ascend.
  const Slot& load(uint64_t block, uint64_t last_wanted);

  int file_;
  std::unique_ptr<TransferQueue> queue_;
  AlignedBuffer buffer_;
  std::vector<Slot> slots_;
  uint64_t begin_ = 0;  // the blocks [begin_, end_) are loaded or being read
  uint64_t end_ = 0;
  uint64_t ahead_ = 0;  // number of blocks to read ahead
};

}  // namespace deepspeed::io
