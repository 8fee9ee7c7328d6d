// The arguments and variables of a process to come, in the form that execve() takes.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/launcher/plan/environment.h"

namespace deepspeed::launcher {

/// Holds what is made before a fork: between fork and exec a child makes system calls alone.
class ExecArguments {
 public:
  /// words[0] is what the program sees as its name.
  ExecArguments(std::vector<std::string> words, const Environment& environment);
  ExecArguments(const ExecArguments&) = delete;
  ExecArguments& operator=(const ExecArguments&) = delete;

  char* const* argv() const { return argv_.data(); }
  char* const* envp() const { return envp_.data(); }

 private:
  std::vector<std::string> words_, entries_;
  std::vector<char*> argv_, envp_;
};

}  // namespace deepspeed::launcher
