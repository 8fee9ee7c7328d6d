// This reader reads a file past the page cache, ahead of a caller that goes from its beginning to its end.
#pragma once

#include <memory>
#include <vector>

#include "deepspeed/io/queue/aligned_buffer.h"
#include "deepspeed/io/queue/transfer_queue.h"

namespace deepspeed::io {

/// Reads one file for one thread.
class DirectReader {
 public:
  /// Takes over the file, which is open with O_DIRECT. `queue`: null for the system's best.
  explicit DirectReader(int file, std::unique_ptr<TransferQueue> queue = nullptr);
  ~DirectReader();
  DirectReader(const DirectReader&) = delete;
  DirectReader& operator=(const DirectReader&) = delete;

  /// Reads `size` bytes from `offset` on. Returns 0 or the errno of what failed; ENODATA where the file ends
  /// before.
  int read(uint64_t offset, void* destination, size_t size);
  /// Returns the bytes of memory that are held between calls.
  static size_t buffer_bytes();

 private:
  struct Slot {
    bool is_reading = false;
    size_t bytes = 0;  // that the block turned out to have
    int error = 0;
  };

  char* data_of(uint64_t block) const;
  Slot& slot_of(uint64_t block) { return slots_[block % slots_.size()]; }
  void start(uint64_t block);
  void wait_for(const Slot& slot);
  /// Brings a block into memory, and starts further ones where the calls go forward.
  const Slot& load(uint64_t block, uint64_t last_wanted);

  int file_;
  std::unique_ptr<TransferQueue> queue_;
  AlignedBuffer buffer_;
  std::vector<Slot> slots_;
  uint64_t begin_ = 0;  // the blocks [begin_, end_) are in memory or on their way
  uint64_t end_ = 0;
  uint64_t ahead_ = 0;  // blocks to read ahead
};

}  // namespace deepspeed::io
