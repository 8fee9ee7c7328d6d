// This FileWriter writes past the page cache: bytes are gathered in blocks of aligned memory, and several
// blocks are on their way to the disk while the next is filled.
#pragma once

#include <memory>
#include <vector>

#include "deepspeed/io/file_writer.h"
#include "deepspeed/io/queue/aligned_buffer.h"
#include "deepspeed/io/queue/transfer_queue.h"

namespace deepspeed::io {

class DirectWriter : public FileWriter {
 public:
  /// Takes over the file, which is open with O_DIRECT. `queue`: null for the system's best.
  DirectWriter(int file, const WriterOptions& options, std::unique_ptr<TransferQueue> queue = nullptr);
  ~DirectWriter() override;

  int reserve(uint64_t bytes) override;
  int write(const void* data, size_t size) override;
  int finish() override;

 private:
  char* block(size_t index) const { return buffer_.data() + index * block_bytes_; }
  void take_memory();
  /// Sends the block that is being filled on its way, and makes the next one free.
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
  size_t current_ = 0;         // the block that is being filled
  size_t filled_ = 0;          // bytes of it
  uint64_t sent_ = 0;          // bytes before the current block
  uint64_t reserved_ = 0;
  int error_ = 0;  // the first that occurred
};

}  // namespace deepspeed::io
