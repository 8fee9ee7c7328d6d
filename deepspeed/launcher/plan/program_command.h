// What is executed for PROGRAM: itself, or an interpreter of Python that runs it.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/plan/environment.h"

namespace deepspeed::launcher {

struct ProgramCommand {
  std::string path;                       ///< the file that is executed
  std::vector<std::string> leading_args;  ///< in front of the program's own
  bool takes_local_rank = false;          ///< the program gets --local_rank=R in front of its own arguments

  /// Returns all arguments of a local rank.
  std::vector<std::string> args_of_rank(int local_rank, const std::vector<std::string>& own_args) const;
};

/// Finds what to execute. Modules and .py files run as `python -u`, by the interpreter that PYTHON names,
/// else by python3, else by python, as PATH finds it. Throws ProgramError as find_program() does, also for a
/// missing .py file and a missing interpreter.
ProgramCommand find_program_command(const LaunchArgs& args, const Environment& environment);

}  // namespace deepspeed::launcher
