#include "deepspeed/launcher/program_main.h"

#include <exception>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include "deepspeed/launcher/args/exit_code.h"

namespace deepspeed::launcher {
namespace {

/// Returns what is wrong with the first word of a program that needs a command; "" if it is one.
std::string fault_of_command(const CLI::App& app, int argc, const char* const* argv) {
  if (app.get_require_subcommand_min() == 0 || argc < 2 || argv[1][0] == '-') return "";
  std::string list;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == argv[1]) return "";
    list += (list.empty() ? "" : ", ") + command->get_name();
  }
  return "unknown command '" + std::string(argv[1]) + "', expected one of " + list;
}

}  // namespace

std::optional<int> exit_of_command_line(CLI::App& app, int argc, const char* const* argv) {
  if (const std::string fault = fault_of_command(app, argc, argv); !fault.empty()) {
    std::cerr << app.get_name() << ": " << fault << "\n";
    return kUsageExitCode;
  }
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
