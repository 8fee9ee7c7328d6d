// Exit codes of programs, and the exit code of an error. 2 and 1 are those of Python's argparse.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "deepspeed/base/error.h"

namespace deepspeed::launcher {

constexpr int kErrorExitCode = 1;
constexpr int kUsageExitCode = 2;

/// Reports that PROGRAM cannot start. Its exit codes are a shell's: 127 if it is not found, 126 if it cannot
/// be executed.
class ProgramError : public Error {
 public:
  ProgramError(const std::string& text, int exit_code) : Error(text), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Returns the exit code for a program that ends with this error. A ProgramError has its own. A bad command
/// line gives 2 (UsageError, NotSupportedError), any other error 1.
int exit_code_of(const std::exception& error);

/// Runs `work` and returns its result. If it throws, logs the error in a line that begins with `place`, and
/// returns exit_code_of(error).
int exit_of_logged(const std::string& place, const std::function<int()>& work);

}  // namespace deepspeed::launcher
