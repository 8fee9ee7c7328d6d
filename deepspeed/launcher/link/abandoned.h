// Whether what has started this process is still there.
#pragma once

#include <poll.h>
#include <unistd.h>

namespace deepspeed::launcher {

/// Whether nobody can read this process's standard output any more: the ssh session, or the runner's program
/// on this machine, has ended. A program that waits for its job then waits in vain.
inline bool is_abandoned() {
  pollfd output{STDOUT_FILENO, 0, 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace deepspeed::launcher
