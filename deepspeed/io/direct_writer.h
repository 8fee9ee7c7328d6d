// Writes past the page cache. It gathers bytes in aligned blocks, several of which are being written while
// the next is filled.
#pragma once

#include <memory>
#include <vector>

#include "deepspeed/io/file_writer.h"
#include "deepspeed/io/queue/aligned_buffer.h"
#include "deepspeed/io/queue/transfer_queue.h"

namespace deepspeed::io {

class DirectWriter : public FileWriter {
 public:
  /// Takes ownership of a file opened with O_DIRECT. If `queue` is null, uses the system's best.
  DirectWriter(int file, const WriterOptions& options, std::unique_ptr<TransferQueue> queue = nullptr);
  ~DirectWriter() override;

  int reserve(uint64_t bytes) override;
  int write(const void* data, size_t size) override;
  int finish() override;

 private:
  char* block(size_t index) const { return buffer_.data() + index * block_bytes_; }
  void take_memory();
  /// Starts to write the filled block, and waits until the next one is free.
  int send_block();
  int wait_for_one();
  int wait_for_all();
  int keep(int error);

  int file_;
  WriterOptions options_;
  std::unique_ptr<TransferQueue> queue_;
  AlignedBuffer buffer_;
  size_t block_bytes_ = 0;
  std::vector<bool> is_busy_;  // by block
  size_t current_ = 0;         // the block being filled
  size_t filled_ = 0;          // its bytes so far
  uint64_t sent_ = 0;          // bytes before the current block
  uint64_t reserved_ = 0;
  int error_ = 0;  // the first that occurred
};

}  // namespace deepspeed::io
