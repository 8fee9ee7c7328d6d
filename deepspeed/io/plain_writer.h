// Writes through the page cache with write().
#pragma once

#include "deepspeed/io/file_writer.h"

namespace deepspeed::io {

class PlainWriter : public FileWriter {
 public:
  /// Takes ownership of the open file.
  explicit PlainWriter(int file) : file_(file) {}
  ~PlainWriter() override;

  int reserve(uint64_t bytes) override;
  int write(const void* data, size_t size) override;
  int finish() override;

 private:
  int keep(int error);

  int file_;
  int error_ = 0;  // the first that occurred
};

}  // namespace deepspeed::io
