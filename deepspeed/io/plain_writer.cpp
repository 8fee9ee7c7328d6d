#include "deepspeed/io/plain_writer.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace deepspeed::io {

PlainWriter::~PlainWriter() {
  if (file_ >= 0) ::close(file_);
}

int PlainWriter::keep(int error) {
  if (error_ == 0) error_ = error;
  return error_;
}

int PlainWriter::reserve(uint64_t bytes) {
  if (bytes == 0 || ::fallocate(file_, FALLOC_FL_KEEP_SIZE, 0, off_t(bytes)) == 0) return 0;
  return errno == ENOSPC || errno == EDQUOT ? keep(errno)
                                            : 0;  // otherwise the file system does not support it
}

int PlainWriter::write(const void* data, size_t size) {
  if (error_ != 0) return error_;
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = ::write(file_, bytes, std::min<size_t>(size, 1u << 30));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return keep(errno);
    bytes += count;
    size -= size_t(count);
  }
  return 0;
}

int PlainWriter::finish() {
  if (error_ != 0) return error_;
  if (::fsync(file_) != 0) return keep(errno);
  return ::close(std::exchange(file_, -1)) == 0 ? 0 : keep(errno);
}

}  // namespace deepspeed::io
