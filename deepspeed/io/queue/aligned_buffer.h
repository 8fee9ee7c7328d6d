// Allocates memory that a disk can access without a copy.
#pragma once

#include <cstddef>

namespace deepspeed::io {

/// Alignment of addresses, offsets and sizes for O_DIRECT, in bytes. It is the largest block size of common
/// disks; the system's pages may be larger.
inline constexpr size_t kDirectAlignment = 4096;

constexpr size_t align_up(size_t bytes) {
  return (bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
}

/// Holds whole zeroed pages. Throws IoError if there is not enough memory.
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
