// The arguments and variables of a new process, in the form that execve() takes.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/launcher/plan/environment.h"

namespace deepspeed::launcher {

/// Holds arguments made before a fork. Between fork and exec a child may only make system calls.
class ExecArguments {
 public:
  /// Copies the arguments and variables; words[0] is argv[0].
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
