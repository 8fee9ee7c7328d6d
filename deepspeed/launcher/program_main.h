// How a program takes its command line and ends: with 0 where all went well or help was asked for, with 2
// where its arguments cannot be taken, with 1 where something else failed.
#pragma once

#include <functional>
#include <optional>

#include "deepspeed/base/export.h"

namespace CLI {
class App;
}

namespace deepspeed::launcher {

/// Parses the command line into what `app` was given. Returns the status with which the program has to end,
/// after help or the error was printed; nothing where it goes on.
DEEPSPEED_API std::optional<int> exit_of_command_line(CLI::App& app, int argc, const char* const* argv);

/// Runs the program's work and returns the status to end with. An exception becomes the line "program:
/// reason" of the standard error, and an exit code (args/exit_code.h).
DEEPSPEED_API int exit_of_work(const char* program, const std::function<void()>& work);

}  // namespace deepspeed::launcher
