// Tells whether the process that started this one still runs.
#pragma once

#include <poll.h>
#include <unistd.h>

namespace deepspeed::launcher {

/// Returns whether this process's standard output has lost its reader. If so, the ssh session or the runner's
/// program on this machine has ended, and waiting for the job is useless.
inline bool is_abandoned() {
  pollfd output{STDOUT_FILENO, 0, 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace deepspeed::launcher
