#include "deepspeed/launcher/plan/program_command.h"

#include <optional>

#include "deepspeed/launcher/plan/program.h"

namespace deepspeed::launcher {
namespace {

constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

std::string value_of(const Environment& environment, const std::string& name, const std::string& otherwise) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? otherwise : found->second;
}

std::string find_python(const Environment& environment) {
  const std::string search_path = value_of(environment, "PATH", kDefaultPath);
  const std::string chosen = value_of(environment, "PYTHON", "");
  if (!chosen.empty()) return find_program(chosen, search_path);
  for (const char* name : {"python3", "python"}) {
    try {
      return find_program(name, search_path);
    } catch (const ProgramError&) {
      continue;
    }
  }
  throw ProgramError(
      "[launcher.program] neither python3 nor python found in PATH; PYTHON=path names another interpreter",
      127);
}

}  // namespace

std::vector<std::string> ProgramCommand::args_of_rank(int local_rank,
                                                      const std::vector<std::string>& own_args) const {
  std::vector<std::string> args = leading_args;
  if (takes_local_rank) args.push_back("--local_rank=" + std::to_string(local_rank));
  args.insert(args.end(), own_args.begin(), own_args.end());
  return args;
}

ProgramCommand find_program_command(const LaunchArgs& args, const Environment& environment) {
  if (!args.runs_python())
    return {find_program(args.program, value_of(environment, "PATH", kDefaultPath)), {}, false};
  if (!args.module) require_readable_file(args.program);
  ProgramCommand command{find_python(environment), {"-u"}, !args.no_local_rank};
  if (args.module) command.leading_args.emplace_back("-m");
  command.leading_args.push_back(args.program);
  return command;
}

}  // namespace deepspeed::launcher
