// Parses a program's command line and returns its exit code. It is 0 for success and help, 2 for wrong
// arguments, and 1 for other errors.
#pragma once

#include <functional>
#include <optional>

#include "deepspeed/base/export.h"

namespace CLI {
class App;
}

namespace deepspeed::launcher {

/// Parses the command line into the variables of `app`. Returns the exit code after help or an error was
/// printed, or nothing to continue.
DEEPSPEED_API std::optional<int> exit_of_command_line(CLI::App& app, int argc, const char* const* argv);

/// Runs the program's work and returns its exit code. An exception prints the line "program: reason" to
/// standard error, and gives an exit code (args/exit_code.h).
DEEPSPEED_API int exit_of_work(const char* program, const std::function<void()>& work);

}  // namespace deepspeed::launcher
