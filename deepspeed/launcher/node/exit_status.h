// Tells how a process ended, in words and as an exit code.
#pragma once

#include <string>

namespace deepspeed::launcher {

/// Wraps waitpid()'s status of a process that has ended.
class ExitStatus {
 public:
  explicit ExitStatus(int wait_status = 0) : wait_status_(wait_status) {}

  bool success() const;
  /// Returns the signal that ended the process, or 0 if it exited by itself.
  int signal() const;
  /// Returns the exit code, or 128 + signal as shells do.
  int exit_code() const;
  /// Describes the end: "exit code 3", "SIGSEGV (core dumped)".
  std::string describe() const;

 private:
  int wait_status_;
};

/// Names a signal: "SIGTERM", "SIGRTMIN+3", or "signal N" for a number without a name.
std::string signal_name(int signal);

}  // namespace deepspeed::launcher
