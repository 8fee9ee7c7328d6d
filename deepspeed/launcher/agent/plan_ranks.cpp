#include "deepspeed/launcher/agent/plan_ranks.h"

#include <algorithm>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <utility>

#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/node/child.h"
#include "deepspeed/launcher/plan/program.h"

namespace deepspeed::launcher {
namespace {

constexpr const char* kLogLevelVariable = "DEEPSPEED_LOG_LEVEL";  // read by the library's log

/// Shares the cores out: one entry a rank; empty without binding.
std::vector<std::vector<int>> bind_cores(const LaunchArgs& args, const Machine& machine, int num_ranks) {
  if (!args.bind_cores_to_rank) return {};
  if (args.bind_core_list.empty()) return share_cores(machine.physical_cores, num_ranks);
  const std::vector<int> cores = parse_core_list(args.bind_core_list);
  for (const int core : cores) {
    if (std::find(machine.cores.begin(), machine.cores.end(), core) != machine.cores.end()) continue;
    raise<UsageError>("--bind_core_list: core ", core,
                      " is not one that this process may run on; leave it out");
  }
  return share_cores(cores, num_ranks);
}

/// Makes the folder and returns `<folder>/<YYYYmmddHHMMSS>_rank`, to which a rank's number and `.log` are
/// added; empty without logs.
std::string log_file_prefix(const std::string& folder) {
  if (folder.empty()) return "";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    raise<IoError>("--enable_each_rank_log: cannot make the folder ", folder, ": ", error.message());
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof(stamp), "%Y%m%d%H%M%S", &local);
  return (std::filesystem::path(folder) / stamp).string() + "_rank";
}

std::chrono::milliseconds signal_grace(const LaunchArgs& args, const Environment& environment) {
  if (args.stop_grace_s) return std::chrono::seconds(*args.stop_grace_s);
  const auto given = environment.find(kStopGraceVariable);
  if (given == environment.end() || given->second.empty()) return NodeLaunch{}.signal_grace;
  const auto seconds = parse_whole_number(given->second);
  if (!seconds || *seconds < 1) {
    raise<UsageError>(kStopGraceVariable, " is '", given->second,
                      "', expected a whole number of seconds, 1 or more");
  }
  return std::chrono::seconds(*seconds);
}

}  // namespace

NodeLaunch plan_ranks(const LaunchArgs& args, const Machine& machine, const Environment& environment,
                      NodeEnvironment node, const std::vector<RankPlace>& places) {
  NodeLaunch launch;
  const ProgramCommand program = find_program_command(args, environment);
  launch.program = program.path;
  launch.signal_grace = signal_grace(args, environment);
  const int num_local = node.layout.local_size(node.node);
  const auto cores = bind_cores(args, machine, num_local);
  node.threads_per_rank = cores.empty() ? threads_per_rank(static_cast<int>(machine.cores.size()), num_local)
                                        : static_cast<int>(cores.front().size());
  const std::string log_prefix = log_file_prefix(args.each_rank_log_dir);
  for (const RankPlace& place : places) {
    RankCommand command;
    command.rank = place.rank;
    command.args = program.args_of_rank(place.local_rank, args.program_args);
    command.environment = rank_environment(environment, node, place);
    if (!args.rank_log_level.empty()) command.environment.emplace(kLogLevelVariable, args.rank_log_level);
    if (!cores.empty()) command.cores = cores[static_cast<size_t>(place.local_rank)];
    if (!log_prefix.empty()) command.log_file = log_prefix + std::to_string(place.rank) + ".log";
    launch.ranks.push_back(std::move(command));
  }
  return launch;
}

void set_meeting(NodeLaunch& launch, const std::string& address, int port) {
  for (RankCommand& command : launch.ranks) {
    command.environment["MASTER_ADDR"] = address;
    command.environment["MASTER_PORT"] = std::to_string(port);
  }
}

namespace {

/// Returns what a program writes, and its status of waitpid(), -1 where it has not ended in time.
std::pair<std::string, int> output_of(const std::vector<std::string>& words, const Environment& environment,
                                      const SignalState& signals, std::chrono::seconds patience) {
  Child child = start_child(words, environment, true, SIGKILL, signals);
  return finish_child(child, patience);
}

}  // namespace

std::string python_version(const std::string& interpreter, const Environment& environment,
                           const SignalState& signals, std::chrono::seconds patience) {
  const auto [output, status] = output_of({interpreter, "--version"}, environment, signals, patience);
  if (status == -1) {
    raise<UsageError>("the interpreter ", interpreter, " has not answered --version within ",
                      patience.count(), " s; PYTHON names another one");
  }
  return output.substr(0, std::min<size_t>(output.find('\n'), 80));
}

Environment source_script(const std::string& script, const Environment& environment,
                          const SignalState& signals, std::chrono::seconds patience) {
  std::string path = script;
  const auto home = environment.find("HOME");
  if (path.starts_with("~/") && home != environment.end()) path = home->second + path.substr(1);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    raise<UsageError>("--venv_script: '", path, "' is no file of this machine");
  // `.` looks for a name without a slash in PATH.
  path = std::filesystem::absolute(path, error).string();
  const char* shell = ::access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
  // The script's own output goes to standard error, and its variables end with zeros. They are read as the
  // kernel shows them, since `env` may be another program after the script.
  constexpr const char* kCommand =
      "exec 3>&1 1>&2; . \"$1\" || exit 1; exec 1>&3 3>&-; exec /bin/cat /proc/self/environ";
  const auto [output, status] =
      output_of({shell, "-c", kCommand, shell, path}, environment, signals, patience);
  if (status == -1) {
    raise<UsageError>("--venv_script: sourcing '", path, "' by ", shell, " has not ended within ",
                      patience.count(), " s; it reads nothing from standard input");
  }
  if (status != 0 || output.empty())
    raise<UsageError>("--venv_script: sourcing '", path, "' by ", shell, " failed; its errors stand above");
  Environment variables;
  for (const std::string& entry : split(output, '\0')) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  for (const char* own : {"_", "SHLVL", "OLDPWD"}) variables.erase(own);
  return variables;
}

}  // namespace deepspeed::launcher
