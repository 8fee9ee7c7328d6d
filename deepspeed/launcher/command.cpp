// From the words of the command line to the processes of one machine.
//
// run_command() parses the words, prints and ends where they only ask for a text, and else plans and
// launches; each class of error has its exit code. plan_launch() first adds the user's files of variables,
// since these may change what is found next; then it looks for the program, so that a misspelled one fails
// before anything else; then resources, cores, log files and port, and at last one command a rank with its
// environment.
#include "deepspeed/launcher/command.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iostream>

#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/announce.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/exit_codes.h"
#include "deepspeed/launcher/node/port.h"
#include "deepspeed/launcher/plan/environment_file.h"
#include "deepspeed/launcher/plan/machine.h"
#include "deepspeed/launcher/plan/program.h"
#include "deepspeed/launcher/plan/resources.h"

namespace deepspeed::launcher {
namespace {

using log::Level;

constexpr const char* kLogLevelVariable = "DEEPSPEED_LOG_LEVEL";  // read by the library's log

std::optional<std::string> lookup(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  if (found == environment.end()) return std::nullopt;
  return found->second;
}

Resources find_resources(LaunchArgs args, Machine machine, const Environment& environment) {
  const bool on_cpu = lookup(environment, "DS_ACCELERATOR") == "cpu";
  if (on_cpu) {  // what counts GPUs counts ranks
    machine.num_gpus = 0;
    args.num_ranks_means_gpus = false;
  }
  const auto hostfile = read_hostfile(args.hostfile);
  if (!hostfile && args.hostfile_given) {
    announce(Level::kWarning, "--hostfile ", args.hostfile, " does not exist; this machine alone is used");
  }
  const Resources resources = resolve_resources(
      args, hostfile, machine, on_cpu ? std::nullopt : lookup(environment, "CUDA_VISIBLE_DEVICES"));
  for (const std::string& warning : resources.warnings) announce(Level::kWarning, warning);
  return resources;
}

/// Adds the variables of the files that the user keeps for launches.
Environment with_environment_files(const Environment& own) {
  const EnvironmentFiles files = read_environment_files(own, std::filesystem::current_path());
  for (const auto& path : files.read)
    announce(Level::kInfo, "variables of ", path.string(), " are set for all ranks");
  if (files.read.empty() && own.contains(kEnvironmentFileVariable)) {
    announce(Level::kWarning, kEnvironmentFileVariable, "=", own.at(kEnvironmentFileVariable),
             " names no file, neither in the home folder nor in this one");
  }
  Environment environment = own;
  for (const auto& [name, value] : files.variables) environment[name] = value;
  return environment;
}

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

PortChoice find_port(const LaunchArgs& args) {
  PortChoice choice = choose_master_port(args.master_port, kDefaultMasterPort);
  if (choice.replaces_default) {
    announce(Level::kInfo, "port ", kDefaultMasterPort, " is in use; the ranks meet at port ", choice.port);
  }
  return choice;
}

std::chrono::milliseconds signal_grace(const LaunchArgs& args, const Environment& environment) {
  if (args.stop_grace_s) return std::chrono::seconds(*args.stop_grace_s);
  const auto given = lookup(environment, kStopGraceVariable);
  if (!given || given->empty()) return NodeLaunch{}.signal_grace;
  const auto seconds = parse_whole_number(*given);
  if (!seconds || *seconds < 1) {
    raise<UsageError>(kStopGraceVariable, " is '", *given,
                      "', expected a whole number of seconds, 1 or more");
  }
  return std::chrono::seconds(*seconds);
}

int run_checked(const std::vector<std::string>& words) {
  const ParsedArgs parsed = parse_args(words);
  if (parsed.text_to_print) {
    std::cout << *parsed.text_to_print << std::flush;
    return 0;
  }
  log::set_level(parsed.args.log_level);
  return launch_node(plan_launch(parsed.args, read_machine(), current_environment()));
}

}  // namespace

NodeLaunch plan_launch(const LaunchArgs& args, const Machine& machine, const Environment& own_environment) {
  NodeLaunch launch;
  const Environment environment = with_environment_files(own_environment);
  const ProgramCommand program = find_program_command(args, environment);
  launch.program = program.path;
  launch.signal_grace = signal_grace(args, environment);
  const Resources resources = find_resources(args, machine, environment);
  NodeEnvironment node;
  node.layout.nodes = resources.nodes;
  node.devices = resources.devices;
  node.master_addr = args.master_addr.empty() ? "127.0.0.1" : args.master_addr;
  const int num_ranks = node.layout.local_size(node.node);
  const auto cores = bind_cores(args, machine, num_ranks);
  node.threads_per_rank = cores.empty() ? threads_per_rank(static_cast<int>(machine.cores.size()), num_ranks)
                                        : static_cast<int>(cores.front().size());
  const PortChoice port = find_port(args);
  node.master_port = port.port;
  launch.port_claim = port.claim;
  const std::string log_prefix = log_file_prefix(args.each_rank_log_dir);
  for (const RankPlace& place : node.layout.ranks_of(node.node)) {
    RankCommand command;
    command.rank = place.rank;
    command.args = program.args_of_rank(place.local_rank, args.program_args);
    command.environment = rank_environment(environment, node, place);
    if (!args.rank_log_level.empty()) command.environment.emplace(kLogLevelVariable, args.rank_log_level);
    if (!cores.empty()) command.cores = cores[static_cast<size_t>(place.local_rank)];
    if (!log_prefix.empty()) command.log_file = log_prefix + std::to_string(place.rank) + ".log";
    launch.ranks.push_back(std::move(command));
  }
  if (args.save_pid) launch.pid_file = "/tmp/" + std::to_string(::getpid()) + ".deepspeed";
  return launch;
}

int run_command(const std::vector<std::string>& words) {
  try {
    return run_checked(words);
  } catch (const ProgramError& error) {
    announce(Level::kError, error.what());
    return error.exit_code();
  } catch (const UsageError& error) {
    announce(Level::kError, error.what());
    return kUsageExitCode;
  } catch (const NotSupportedError& error) {
    announce(Level::kError, error.what());
    return kUsageExitCode;
  } catch (const std::exception& error) {
    announce(Level::kError, error.what());
    return kErrorExitCode;
  }
}

}  // namespace deepspeed::launcher
