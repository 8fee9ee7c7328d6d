// Open file descriptors that close by themselves.
#pragma once

#include <utility>

#include <unistd.h>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Owns an open file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  /// Takes ownership of `fd`; -1 means none.
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close() { *this = Descriptor(); }
  /// Returns the descriptor and stops owning it.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// Owns both ends of a pipe.
struct DEEPSPEED_API Pipe {
  /// Opens a pipe. Throws IoError if the process can open no more descriptors.
  Pipe();

  Descriptor read_end, write_end;
};

/// Makes reads and writes that would wait fail with EAGAIN instead.
DEEPSPEED_API void make_non_blocking(int fd);

}  // namespace deepspeed
