#include "deepspeed/launcher/program_main.h"

#include <exception>
#include <iostream>

#include <CLI/CLI.hpp>

#include "deepspeed/launcher/args/exit_code.h"

namespace deepspeed::launcher {

std::optional<int> exit_of_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageExitCode;
  }
}

int exit_of_work(const char* program, const std::function<void()>& work) {
  try {
    work();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << program << ": " << error.what() << "\n";
    return exit_code_of(error);
  }
}

}  // namespace deepspeed::launcher
