#include "deepspeed/io/queue/aligned_buffer.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/mman.h>

#include "deepspeed/base/error.h"

namespace deepspeed::io {

AlignedBuffer::AlignedBuffer(size_t bytes) : size_(align_up(bytes)) {
  if (size_ == 0) return;
  void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    raise<IoError>("there is no memory for ", size_, " bytes: ", std::strerror(errno));
  data_ = static_cast<char*>(memory);
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace deepspeed::io
