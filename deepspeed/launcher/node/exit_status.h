// Says how a process ended, in words and as an exit code.
#pragma once

#include <string>

namespace deepspeed::launcher {

/// Wraps what waitpid() says of a process that has ended.
class ExitStatus {
 public:
  explicit ExitStatus(int wait_status = 0) : wait_status_(wait_status) {}

  bool success() const;
  /// The signal that ended the process, 0 where it exited by itself.
  int signal() const;
  /// The exit code, or 128 + signal as shells count.
  int exit_code() const;
  /// Describes the end: "exit code 3", "SIGSEGV (core dumped)".
  std::string describe() const;

 private:
  int wait_status_;
};

/// Names a signal: "SIGTERM", "SIGRTMIN+3"; "signal N" for a number without a name.
std::string signal_name(int signal);

}  // namespace deepspeed::launcher
