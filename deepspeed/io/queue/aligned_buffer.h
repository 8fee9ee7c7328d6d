// A disk can read and write this memory without a copy in between.
#pragma once

#include <cstddef>

namespace deepspeed::io {

/// Is what O_DIRECT asks of addresses, offsets and sizes, in bytes: the largest block of common disks. The
/// system's pages may be larger, and do not matter to it.
inline constexpr size_t kDirectAlignment = 4096;

constexpr size_t align_up(size_t bytes) {
  return (bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
}

/// Holds whole pages, zeroed. Throws IoError where there is no memory.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;

  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace deepspeed::io
