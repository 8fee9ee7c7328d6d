// Turns the words of the command line into processes.
//
// run_command() parses the words. It prints a text if they ask for one. Otherwise it launches on this machine
// or on several; runs_here() decides which. start_elsewhere() makes the job that machines/job_run.h starts.
// An elastic job may start again after a loss.
//
// For this machine plan_launch() first adds the user's files of variables, since they influence what follows.
// Next it finds the program, so that a misspelled one fails before anything else. Then it finds resources,
// cores, log files and the port. At last it makes one command with its environment for each rank.
#include "deepspeed/launcher/command.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <string_view>

#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/config/table/source.h"
#include "deepspeed/config/tools/elastic_batch.h"
#include "deepspeed/launcher/args/announce.h"
#include "deepspeed/launcher/args/exit_code.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/machines/exports.h"
#include "deepspeed/launcher/machines/job_run.h"
#include "deepspeed/launcher/machines/runner_command.h"
#include "deepspeed/launcher/node/interpreter.h"
#include "deepspeed/launcher/node/node_launch.h"
#include "deepspeed/launcher/node/port.h"
#include "deepspeed/launcher/plan/environment_file.h"
#include "deepspeed/launcher/plan/machine.h"
#include "deepspeed/launcher/plan/program.h"
#include "deepspeed/launcher/plan/resources.h"

namespace deepspeed::launcher {
namespace {

using log::Level;

/// Returns the machines that the user names, or nothing if there is no hostfile.
std::optional<ResourcePool> given_pool(const LaunchArgs& args) {
  if (!args.world_info.empty()) return decode_world_info(args.world_info);
  auto pool = read_hostfile(args.hostfile);
  if (!pool && args.num_nodes.value_or(1) > 1) {
    raise<UsageError>("--num_nodes is ", *args.num_nodes,
                      ", but there is no hostfile that names the machines; ",
                      "expected --hostfile FILE with lines 'HOST slots=N'");
  }
  return pool;
}

/// Returns given_pool(), and warns if --hostfile names a file that does not exist.
std::optional<ResourcePool> pool_or_warning(const LaunchArgs& args) {
  auto pool = given_pool(args);
  if (!pool && args.hostfile_given) {
    announce_to_all_levels(
        message("--hostfile ", args.hostfile, " does not exist; this machine alone is used"));
  }
  return pool;
}

Resources find_resources(const LaunchArgs& args, const Machine& machine, const Environment& environment) {
  const auto hostfile = pool_or_warning(args);
  const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  const bool is_visible = visible != environment.end() && !runs_on_cpu(environment);
  const Resources resources =
      resolve_resources(args, hostfile, machine, is_visible ? std::optional(visible->second) : std::nullopt);
  for (const std::string& warning : resources.warnings) announce(Level::kWarning, warning);
  return resources;
}

/// Reads the user's files of variables, and logs which files these are.
Environment variables_of_files(const Environment& own) {
  const EnvironmentFiles files = read_environment_files(own, std::filesystem::current_path());
  for (const auto& path : files.read)
    announce(Level::kInfo, "variables of ", path.string(), " are set for all ranks");
  if (files.read.empty() && own.contains(kEnvironmentFileVariable)) {
    announce(Level::kWarning, kEnvironmentFileVariable, "=", own.at(kEnvironmentFileVariable),
             " names no file, neither in the home folder nor in this one");
  }
  return files.variables;
}

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

/// Returns the settings of this machine's ranks if the user starts the other machines.
NodeEnvironment one_of_several(const LaunchArgs& args, const Machine& machine) {
  NodeEnvironment node;
  const auto pool = pool_or_warning(args);
  node.layout.nodes = choose_nodes(args, pool ? *pool : local_pool(args, machine));
  node.node = *args.node_rank;
  if (node.node >= node.layout.num_nodes()) {
    raise<UsageError>("--node_rank is ", node.node, ", expected 0 to ", node.layout.num_nodes() - 1,
                      ", since the job has ", node.layout.num_nodes(),
                      node.layout.num_nodes() == 1 ? " machine" : " machines");
  }
  node.devices = devices_of(node.layout.nodes[static_cast<size_t>(node.node)], machine);
  node.master_addr = args.master_addr;
  if (!node.master_addr.empty()) return node;
  if (node.layout.num_nodes() > 1) {
    raise<UsageError>(
        "--no_ssh is given without --master_addr, expected the address of machine 0: nobody else tells ",
        "it to this one");
  }
  node.master_addr = "127.0.0.1";
  return node;
}

std::string pid_file_path() { return "/tmp/" + std::to_string(::getpid()) + ".deepspeed"; }

PortChoice find_port(const std::optional<int>& given) {
  PortChoice choice = choose_master_port(given, kDefaultMasterPort);
  if (choice.replaces_default) {
    announce(Level::kInfo, "port ", kDefaultMasterPort, " is in use; the ranks meet at port ", choice.port);
  }
  return choice;
}

/// Returns whether all ranks run on this machine.
bool runs_here(const LaunchArgs& args, const std::optional<ResourcePool>& pool, const Machine& machine) {
  if (args.no_ssh) return true;
  if (args.force_multi || args.elastic) return false;
  if (!pool) return true;
  const ResourcePool nodes = choose_nodes(args, *pool);
  return nodes.size() == 1 && (machine.is_this(nodes[0].host) || has_address(nodes[0].host));
}

/// Returns the path of ds_node: DS_NODE_PROGRAM if set, otherwise that in this program's folder.
std::string find_node_program(const Environment& environment) {
  if (const std::string named = value_of(environment, "DS_NODE_PROGRAM"); !named.empty()) return named;
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", error);
  return (own.parent_path() / "ds_node").string();
}

bool is_installed(const char* program, const Environment& environment) {
  try {
    find_program(program, value_of(environment, "PATH", kDefaultPath));
    return true;
  } catch (const ProgramError&) {
    return false;
  }
}

/// Replaces pdsh, the default, by ssh if pdsh is missing. Throws UsageError if ssh is missing too, or if the
/// runner that the user named is missing.
void choose_runner(LaunchArgs& args, const Environment& environment) {
  const char* probe = probe_of(args.runner);
  if (is_installed(probe, environment)) return;
  if (!args.runner_given && is_installed(probe_of(Runner::kSsh), environment)) {
    announce(Level::kInfo, "pdsh is not installed; the machines are reached by ssh");
    args.runner = Runner::kSsh;
    return;
  }
  raise<UsageError>("--launcher ", name_of(args.runner), " is not installed: ", probe,
                    " is not found in PATH; install it, or name another launcher");
}

MachineJob make_job(const LaunchArgs& args, const std::vector<std::string>& words, const Machine& machine,
                    const std::optional<ResourcePool>& pool) {
  const Environment own = current_environment();
  MachineJob job;
  job.args = args;
  job.words = words;
  job.hostfile = pool && args.world_info.empty() ? args.hostfile : "";
  job.machine = machine;
  job.environment = own;
  job.exports = exports_of(own, variables_of_files(own), std::filesystem::current_path().string());
  job.node_program = find_node_program(own);
  choose_runner(job.args, own);
  check_runner_flags(job.args);
  return job;
}

/// Returns the section elasticity of the program's config (--deepspeed_config FILE). Returns nothing unless
/// it is enabled.
std::optional<config::ElasticRules> elastic_rules(const LaunchArgs& args) {
  constexpr std::string_view kFlag = "--deepspeed_config";
  for (size_t i = 0; i < args.program_args.size(); ++i) {
    const std::string& word = args.program_args[i];
    const bool has_next = i + 1 < args.program_args.size();
    std::string path;
    if (word == kFlag && has_next) path = args.program_args[i + 1];
    if (word.starts_with(std::string(kFlag) + "=")) path = word.substr(kFlag.size() + 1);
    if (path.empty()) continue;
    const Json config = config::ConfigSource(path).read();
    const auto section = config.find("elasticity");
    const bool is_on = section != config.end() && section->is_object() && section->value("enabled", false);
    if (is_on) return config::ElasticRules::from_json(*section);
  }
  return std::nullopt;
}

/// Restarts an elastic job on the machines that answer, at most --max_restarts times.
int run_elastic(MachineJob job, const ResourcePool& nodes, const BlockedSignals& signals) {
  const size_t fewest = static_cast<size_t>(job.args.min_nodes.value_or(1));
  const size_t most = static_cast<size_t>(job.args.max_nodes.value_or(static_cast<int>(nodes.size())));
  const std::string first = nodes.front().host;
  const auto rules = elastic_rules(job.args);
  job.choose_machines = [=](ResourcePool answering) -> size_t {
    answering.resize(std::min(answering.size(), most));
    for (; answering.size() >= fewest; answering.pop_back()) {
      const int num_ranks = WorldLayout{answering}.world_size();
      if (!rules || config::elastic_batch(*rules, num_ranks).micro_batch_size > 0) return answering.size();
    }
    return 0;
  };
  for (int restarts = 0;; ++restarts) {
    const JobEnd end = JobRun(job, nodes, restarts, signals).run();
    if (!end.is_failure_of_run) return end.exit_code;
    if (restarts >= job.args.max_restarts) {
      announce(Level::kError, "the job has started again ", restarts, " times, --max_restarts is ",
               job.args.max_restarts, "; it ends");
      return end.exit_code;
    }
    job.doubtful_hosts = end.lost_hosts;
    const bool first_is_lost =
        std::find(end.lost_hosts.begin(), end.lost_hosts.end(), first) != end.lost_hosts.end();
    if (!job.args.master_addr.empty() && first_is_lost) {
      announce(Level::kInfo, "--master_addr ", job.args.master_addr, " went with host ", first,
               "; another address is chosen");
      job.args.master_addr.clear();
    }
    const std::string lost =
        end.lost_hosts.empty() ? ""
                               : "; host " + join(end.lost_hosts, ", ") + " was lost and is tried once more";
    announce(Level::kWarning, "the job starts again (", restarts + 1, " of at most ", job.args.max_restarts,
             ")", lost);
  }
}

int start_elsewhere(const LaunchArgs& args, const std::vector<std::string>& words, const Machine& machine,
                    const std::optional<ResourcePool>& pool) {
  MachineJob job = make_job(args, words, machine, pool);
  const ResourcePool nodes = choose_nodes(args, pool ? *pool : local_pool(args, machine));
  if (args.elastic && nodes.size() < static_cast<size_t>(args.min_nodes.value_or(1))) {
    raise<UsageError>("--min_elastic_nodes is ", *args.min_nodes, ", but the hostfile has ", nodes.size(),
                      nodes.size() == 1 ? " host" : " hosts");
  }
  const bool is_of_mpi = places_ranks(job.args.runner) && job.args.runner != Runner::kSlurm;
  job.checks_hosts = is_of_mpi && !args.no_ssh_check && pool.has_value();
  const PidFile pid_file(args.save_pid ? pid_file_path() : "");
  const BlockedSignals signals;
  ::signal(SIGPIPE, SIG_IGN);
  return args.elastic ? run_elastic(job, nodes, signals) : JobRun(job, nodes, 0, signals).run().exit_code;
}

int run_checked(const std::vector<std::string>& words) {
  const ParsedArgs parsed = parse_args(words);
  if (parsed.text_to_print) {
    std::cout << *parsed.text_to_print << std::flush;
    return 0;
  }
  log::set_level(parsed.args.log_level);
  const Machine machine = read_machine();
  const auto pool = given_pool(parsed.args);
  if (!runs_here(parsed.args, pool, machine)) return start_elsewhere(parsed.args, words, machine, pool);
  return launch_node(plan_launch(parsed.args, machine, current_environment()));
}

}  // namespace

NodeLaunch plan_launch(const LaunchArgs& args, const Machine& this_machine,
                       const Environment& own_environment) {
  Environment environment = with(own_environment, variables_of_files(own_environment));
  if (!args.venv_script.empty())
    environment = source_script(args.venv_script, environment, current_signals());
  Machine machine = this_machine;
  if (runs_on_cpu(environment)) machine.num_gpus = 0;
  // A misspelled program fails before anything else.
  find_program_command(args, environment);
  NodeEnvironment node;
  std::shared_ptr<PortClaim> claim;
  if (args.no_ssh) {
    node = one_of_several(args, machine);
  } else {
    const Resources resources = find_resources(args, machine, environment);
    node.layout.nodes = resources.nodes;
    node.devices = resources.devices;
    node.master_addr = args.master_addr.empty() ? "127.0.0.1" : args.master_addr;
  }
  // A machine other than the first knows the port only from its own command line.
  const bool is_alone = node.layout.num_nodes() == 1;
  node.master_port = args.master_port.value_or(kDefaultMasterPort);
  if (node.node == 0) {
    const PortChoice port = find_port(is_alone ? args.master_port : node.master_port);
    node.master_port = port.port;
    claim = port.claim;
  }
  NodeLaunch launch = plan_ranks(args, machine, environment, node, node.layout.ranks_of(node.node));
  launch.port_claim = claim;
  if (args.save_pid) launch.pid_file = pid_file_path();
  return launch;
}

int run_command(const std::vector<std::string>& words) {
  return exit_of_logged("", [&] { return run_checked(words); });
}

}  // namespace deepspeed::launcher
