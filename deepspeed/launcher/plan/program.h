// Finds PROGRAM, and reports before anything starts why it cannot run.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/args/exit_code.h"
#include "deepspeed/launcher/plan/environment.h"

namespace deepspeed::launcher {

/// Finds the path to execute. That is `name` itself if it has a slash, otherwise the first match in
/// `search_path` (as PATH). Throws ProgramError for a missing file, a folder, a missing permission, a script
/// without `#!`, and a missing `#!` interpreter.
std::string find_program(const std::string& name, const std::string& search_path);

/// Throws ProgramError if a script for an interpreter is missing, a folder or not readable.
void require_readable_file(const std::string& path);

struct ProgramCommand {
  std::string path;                       ///< the file that is executed
  std::vector<std::string> leading_args;  ///< in front of the program's own
  bool takes_local_rank = false;          ///< the program gets --local_rank=R in front of its own arguments

  /// Returns all arguments after `path`, for a rank's number on its machine.
  std::vector<std::string> args_of_rank(int local_rank, const std::vector<std::string>& own_args) const;
};

/// Finds what to execute. Modules and .py files run as `python -u`. The interpreter is the one that PYTHON
/// names, or python3, or python, looked up in PATH. Throws ProgramError as find_program() does, also for a
/// missing .py file or interpreter.
ProgramCommand find_program_command(const LaunchArgs& args, const Environment& environment);

}  // namespace deepspeed::launcher
