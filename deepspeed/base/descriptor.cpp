#include "deepspeed/base/descriptor.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>

#include "deepspeed/base/error.h"

namespace deepspeed {

Pipe::Pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) raise<IoError>("cannot make a pipe: ", std::strerror(errno));
  read_end = Descriptor(ends[0]);
  write_end = Descriptor(ends[1]);
}

void make_non_blocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace deepspeed
