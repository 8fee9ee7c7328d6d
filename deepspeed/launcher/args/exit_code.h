// The exit codes of programs, and how an error becomes one. 2 and 1 are those of Python's argparse.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "deepspeed/base/error.h"

namespace deepspeed::launcher {

constexpr int kErrorExitCode = 1;
constexpr int kUsageExitCode = 2;

/// Is thrown for a PROGRAM that cannot be started. The code is a shell's: 127 if it is not found, 126 if it
/// cannot be executed.
class ProgramError : public Error {
 public:
  ProgramError(const std::string& text, int exit_code) : Error(text), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Returns the exit code of a program that ends by this error. It is a ProgramError's own, 2 for a command
/// line that cannot be taken (UsageError, NotSupportedError), and 1 for other errors.
int exit_code_of(const std::exception& error);

/// Returns what `work` returns. An error becomes an exit code, and a line of the log that begins with
/// `place`.
int exit_of_logged(const std::string& place, const std::function<int()>& work);

}  // namespace deepspeed::launcher
