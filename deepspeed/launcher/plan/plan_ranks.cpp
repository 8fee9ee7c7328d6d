#include "deepspeed/launcher/plan/plan_ranks.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/announce.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/plan/program.h"

namespace deepspeed::launcher {
namespace {

constexpr const char* kLogLevelVariable = "DEEPSPEED_LOG_LEVEL";  // read by the library's log

/// Returns the cores of each rank, or an empty list without --bind_cores_to_rank.
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

/// Makes the folder for logs and returns the beginning of their paths, `<folder>/<YYYYmmddHHMMSS>_rank`. A
/// rank's number and `.log` follow. Returns "" without logs.
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
  const std::string given = value_of(environment, kStopGraceVariable);
  if (given.empty()) return NodeLaunch{}.signal_grace;
  const auto seconds = parse_whole_number(given);
  if (!seconds || *seconds < 1)
    raise<UsageError>(kStopGraceVariable, " is '", given, "', expected a whole number of seconds, 1 or more");
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
  const bool lacks_gpus = args.num_ranks_flag == "--num_gpus" && node.devices.empty();
  if (lacks_gpus && !runs_on_cpu(environment) && places.front().rank == 0)
    announce(log::Level::kWarning, "no GPU is visible: the ranks that --num_gpus counts run on the CPU");
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

}  // namespace deepspeed::launcher
