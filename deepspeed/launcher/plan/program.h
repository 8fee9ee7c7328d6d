// Finds PROGRAM and says before anything starts why it could not be run.
#pragma once

#include <string>

#include "deepspeed/base/error.h"

namespace deepspeed::launcher {

/// The error for a PROGRAM that cannot be started. The code is a shell's: 127 not found, 126 found but not
/// executable.
class ProgramError : public Error {
 public:
  ProgramError(const std::string& text, int exit_code) : Error(text), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Finds the path to execute: `name` itself where it holds a slash, else the first match in `search_path` (as
/// PATH). Throws ProgramError for a missing file, a folder, a missing permission, a script without `#!`, and
/// a `#!` interpreter that does not exist.
std::string find_program(const std::string& name, const std::string& search_path);

/// Throws ProgramError where a script that an interpreter is to run is missing, a folder or not readable.
void require_readable_file(const std::string& path);

}  // namespace deepspeed::launcher
