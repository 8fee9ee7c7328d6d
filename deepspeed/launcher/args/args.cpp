// Parses the command line in stages, so that each error names the flag that is at fault.
//
// CLI11 reads the flags up to PROGRAM (prefix_command) into RawArgs; all words after it stay as they are.
// --help,
// --version and the help of the config end here with a text. Known flags that this version does not have are
// refused next, each with its way out; then flags that contradict each other. Values are taken over last
// (number of ranks, port, log level), and PROGRAM is the first word that is left.
#include "deepspeed/launcher/args/args.h"

#include <cctype>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>

#include "deepspeed/base/error.h"
#include "deepspeed/base/version.h"
#include "deepspeed/config/help.h"
#include "deepspeed/launcher/args/unsupported_flags.h"

namespace deepspeed::launcher {
namespace {

/// Holds the values as CLI11 stores them, before they are checked against each other.
struct RawArgs {
  LaunchArgs args;
  std::optional<int> num_procs;
  std::optional<int> num_gpus;
  std::string runner;
  int max_restarts = LaunchArgs{}.max_restarts;
  int master_port = kDefaultMasterPort;
  int stop_grace = 0;
  std::string log_level = "info";
  bool quiet = false;
  std::string help_section;
  bool help_markdown = false;
  UnsupportedFlags unsupported;
};

/// Makes CLI11's help with a usage line that says where the program's own arguments stand.
class HelpText : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: deepspeed [flags] PROGRAM [arguments of PROGRAM]\n";
  }
};

void add_resource_flags(CLI::App& app, RawArgs& raw) {
  app.add_option("-H,--hostfile", raw.args.hostfile,
                 "Lines 'HOST slots=N': the machines and the ranks of each")
      ->capture_default_str();
  app.add_option("-i,--include", raw.args.include, "Hosts and slots to use: NAME[:SLOT,...][@NAME...]");
  app.add_option("-e,--exclude", raw.args.exclude, "Hosts and slots to leave out, same grammar");
  app.add_option("--num_procs,--num_accelerators", raw.num_procs,
                 "Number of ranks of a machine: one a GPU, or on the CPU where it has no GPU");
  app.add_option("--num_gpus", raw.num_gpus, "Number of ranks of a machine, each with a GPU");
  app.add_option("--num_nodes", raw.args.num_nodes, "Number of machines, from the top of the hostfile");
}

void add_run_flags(CLI::App& app, RawArgs& raw) {
  app.add_option("--master_port", raw.master_port, "Port at which the ranks meet")->capture_default_str();
  app.add_option("--master_addr", raw.args.master_addr, "Address at which the ranks meet (127.0.0.1)");
  app.add_flag("--bind_cores_to_rank", raw.args.bind_cores_to_rank,
               "Give each rank its own share of the cores");
  app.add_option("--bind_core_list", raw.args.bind_core_list,
                 "Cores to share out, e.g. 0-3,8; switches --bind_cores_to_rank on");
  app.add_option("--enable_each_rank_log", raw.args.each_rank_log_dir,
                 "Folder for one log file a rank, in place of this terminal");
  app.add_flag("--save_pid", raw.args.save_pid, "Keep this launcher's process id in /tmp/<id>.deepspeed");
  app.add_option("--stop_grace", raw.stop_grace,
                 "Seconds between a signal that is forwarded and the ranks' SIGKILL (30, or DS_STOP_GRACE)");
  app.add_option("--log_level", raw.log_level,
                 "debug, info, warning, error or critical: of the launcher and of the ranks")
      ->capture_default_str();
  app.add_flag("-q,--quiet", raw.quiet, "Same as --log_level error");
}

void add_machine_flags(CLI::App& app, RawArgs& raw) {
  LaunchArgs& args = raw.args;
  app.add_option(
      "--launcher", raw.runner,
      "pdsh, ssh, openmpi, mpich, impi, mvapich or slurm: what starts the other machines' ranks (pdsh, or "
      "ssh where it is missing)");
  app.add_option("--launcher_args", args.runner_args, "Arguments of that launcher, as one word");
  app.add_option("--slurm_comment", args.slurm_comment, "Comment of the Slurm job");
  app.add_option("--ssh_port", args.ssh_port, "Port of the machines' ssh servers");
  app.add_flag("--no_ssh_check", args.no_ssh_check,
               "Do not try the machines by ssh before MPI's launcher starts");
  app.add_flag("--no_ssh", args.no_ssh,
               "Start this machine's ranks alone; the command is run on each machine by somebody else");
  app.add_option("--node_rank", args.node_rank, "This machine's number, with --no_ssh");
  app.add_flag("--force_multi", args.force_multi, "Use the launcher of several machines for one as well");
  app.add_option("--venv_script", args.venv_script, "Script to source on each machine first");
  app.add_flag("--elastic_training", args.elastic,
               "Start again on the machines that are left when one is lost or a rank fails");
  app.add_option("--min_elastic_nodes", args.min_nodes, "Fewest machines to go on with (1)");
  app.add_option("--max_elastic_nodes", args.max_nodes, "Most machines to use at a time (all)");
  app.add_option("--max_restarts", raw.max_restarts, "How often an elastic job starts again")
      ->capture_default_str();
  app.add_option("--world_info", args.world_info)->group("");  // of deepspeed.launcher.launch
}

void add_python_flags(CLI::App& app, RawArgs& raw) {
  app.add_flag("--module", raw.args.module, "PROGRAM is the name of a Python module, run as python -m does");
  app.add_flag("--no_python", raw.args.no_python, "Run a .py file as the executable that it is");
  app.add_flag("--no_local_rank", raw.args.no_local_rank,
               "Give Python programs no --local_rank argument; executables never get one");
}

void add_help_flags(CLI::App& app, RawArgs& raw) {
  app.add_option("--help-config", raw.help_section,
                 "Print the keys of the config, of a SECTION of it, or those with a WORD, and exit")
      ->expected(0, 1)
      ->type_name("[SECTION|WORD]");
  app.add_flag("--help-config-markdown", raw.help_markdown, "Print docs/config.md and exit");
}

/// Returns the text of a flag that only prints; nothing where none is given.
std::optional<std::string> help_asked_for(const CLI::App& app, const RawArgs& raw) {
  if (raw.help_markdown) return config::help_markdown();
  if (app.count("--help-config") > 0) return config::help_text(raw.help_section);
  return std::nullopt;
}

int at_least_one(const char* flag, int value) {
  if (value < 1) raise<UsageError>(flag, " is ", value, ", expected a number of 1 or more");
  return value;
}

// Drops -1, DeepSpeed's own default of these flags (all GPUs, all machines), which its scripts also write
// out.
void forget_defaults(RawArgs& raw) {
  LaunchArgs& args = raw.args;
  for (auto* number : {&raw.num_gpus, &args.num_nodes, &args.node_rank, &args.min_nodes, &args.max_nodes}) {
    if (*number == -1) number->reset();
  }
}

void check_conflicts(const RawArgs& raw) {
  const LaunchArgs& args = raw.args;
  if (args.module && args.no_python) {
    raise<UsageError>("--module and --no_python are both given, expected one of them: a module needs ",
                      "python to run it");
  }
  if (raw.num_procs && raw.num_gpus) {
    raise<UsageError>("--num_procs and --num_gpus are both given, expected one of them");
  }
  if (args.include.empty() && args.exclude.empty()) return;
  if (!args.include.empty() && !args.exclude.empty()) {
    raise<UsageError>("--include and --exclude are both given, expected one of them");
  }
  const char* filter = args.include.empty() ? "--exclude" : "--include";
  const std::pair<const char*, std::optional<int>> numbers[] = {
      {"--num_nodes", args.num_nodes}, {"--num_procs", raw.num_procs}, {"--num_gpus", raw.num_gpus}};
  for (const auto& [flag, value] : numbers) {
    if (!value) continue;
    raise<UsageError>(flag, " and ", filter, " are both given; ", filter,
                      " alone already says where ranks run");
  }
}

void require_with(const char* flag, bool is_given, const char* other, bool other_is_given) {
  if (!is_given || other_is_given) return;
  raise<UsageError>(flag, " is given without ", other, ", expected both or none");
}

void check_elastic(const LaunchArgs& args) {
  require_with("--min_elastic_nodes", args.min_nodes.has_value(), "--elastic_training", args.elastic);
  require_with("--max_elastic_nodes", args.max_nodes.has_value(), "--elastic_training", args.elastic);
  if (!args.elastic) return;
  if (args.no_ssh) {
    raise<UsageError>(
        "--elastic_training and --no_ssh are both given: a launcher that starts no other machine ",
        "cannot start the job again");
  }
  if (places_ranks(args.runner)) {
    raise<UsageError>("--elastic_training and --launcher ", name_of(args.runner),
                      " are both given, expected ",
                      "pdsh or ssh: MPI and Slurm end a job that loses a machine");
  }
  if (args.min_nodes && args.max_nodes && *args.min_nodes > *args.max_nodes) {
    raise<UsageError>("--min_elastic_nodes is ", *args.min_nodes, ", expected at most --max_elastic_nodes, ",
                      *args.max_nodes);
  }
}

/// Takes what says how several machines are reached.
void take_machines(const CLI::App& app, RawArgs& raw) {
  LaunchArgs& args = raw.args;
  args.runner_given = app.count("--launcher") > 0;
  if (args.runner_given) args.runner = runner_from_name(raw.runner);
  if (args.num_nodes) at_least_one("--num_nodes", *args.num_nodes);
  if (args.min_nodes) at_least_one("--min_elastic_nodes", *args.min_nodes);
  if (args.max_nodes) at_least_one("--max_elastic_nodes", *args.max_nodes);
  if (args.node_rank && *args.node_rank < 0) {
    raise<UsageError>("--node_rank is ", *args.node_rank, ", expected this machine's number, 0 or more");
  }
  if (args.node_rank && *args.node_rank > 0 && !args.no_ssh) {
    raise<UsageError>("--node_rank ", *args.node_rank,
                      " is given without --no_ssh, expected both: otherwise ",
                      "the launcher numbers the machines");
  }
  if (args.no_ssh && !args.node_rank) {
    raise<UsageError>(
        "--no_ssh is given without --node_rank, expected both: this machine's number is missing");
  }
  if (args.ssh_port && (*args.ssh_port < 1 || *args.ssh_port > 65535))
    raise<UsageError>("--ssh_port is ", *args.ssh_port, ", expected 1 to 65535");
  if (raw.max_restarts < 0) raise<UsageError>("--max_restarts is ", raw.max_restarts, ", expected 0 or more");
  args.max_restarts = raw.max_restarts;
  if (!args.slurm_comment.empty() && args.runner != Runner::kSlurm)
    raise<UsageError>("--slurm_comment is given without --launcher slurm, expected both or none");
  check_elastic(args);
}

void take_number_of_ranks(RawArgs& raw) {
  if (raw.num_gpus) raw.args.num_ranks = at_least_one("--num_gpus", *raw.num_gpus);
  if (raw.num_procs) raw.args.num_ranks = at_least_one("--num_procs", *raw.num_procs);
  raw.args.num_ranks_means_gpus = raw.num_gpus.has_value();
}

void take_port_and_log_level(const CLI::App& app, RawArgs& raw) {
  if (app.count("--master_port") > 0) {
    if (raw.master_port < 1 || raw.master_port > 65535) {
      raise<UsageError>("--master_port is ", raw.master_port, ", expected 1 to 65535");
    }
    raw.args.master_port = raw.master_port;
  }
  if (app.count("--stop_grace") > 0) raw.args.stop_grace_s = at_least_one("--stop_grace", raw.stop_grace);
  if (raw.quiet) raw.log_level = "error";
  raw.args.log_level = log::level_from_name(raw.log_level);
  if (raw.quiet || app.count("--log_level") > 0) raw.args.rank_log_level = raw.log_level;
  if (raw.args.each_rank_log_dir == "None") raw.args.each_rank_log_dir.clear();
  if (!raw.args.bind_core_list.empty()) raw.args.bind_cores_to_rank = true;
}

void take_program(std::vector<std::string> rest, RawArgs& raw) {
  const bool explicit_end = !rest.empty() && rest.front() == "--";
  if (explicit_end) rest.erase(rest.begin());
  if (rest.empty()) {
    raise<UsageError>("no PROGRAM given, expected: deepspeed [flags] PROGRAM [its arguments]; see --help");
  }
  if (!explicit_end && rest.front().size() > 1 && rest.front()[0] == '-') {
    raise<UsageError>(
        "unknown flag '", rest.front(),
        "' before PROGRAM; `deepspeed --help` lists the flags, and the program's own come after PROGRAM");
  }
  raw.args.program = rest.front();
  raw.args.program_args.assign(rest.begin() + 1, rest.end());
}

}  // namespace

bool LaunchArgs::runs_python() const {
  return module || (!no_python && program.size() > 3 && program.ends_with(".py"));
}

namespace {

constexpr std::pair<Runner, const char*> kRunners[] = {
    {Runner::kPdsh, "pdsh"},   {Runner::kSsh, "ssh"},       {Runner::kOpenMpi, "openmpi"},
    {Runner::kMpich, "mpich"}, {Runner::kIntelMpi, "impi"}, {Runner::kMvapich, "mvapich"},
    {Runner::kSlurm, "slurm"},
};

}  // namespace

Runner runner_from_name(const std::string& name) {
  std::string lower = name;
  for (char& letter : lower) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  std::string known;
  for (const auto& [runner, its_name] : kRunners) {
    if (lower == its_name) return runner;
    known += (known.empty() ? "" : ", ") + std::string(its_name);
  }
  raise<UsageError>("--launcher is '", name, "', expected one of: ", known);
}

const char* name_of(Runner runner) {
  for (const auto& [known, name] : kRunners) {
    if (known == runner) return name;
  }
  return "";
}

bool places_ranks(Runner runner) { return runner != Runner::kPdsh && runner != Runner::kSsh; }

ParsedArgs parse_args(const std::vector<std::string>& words) {
  CLI::App app{
      "Starts PROGRAM once a rank on one machine or more, watches over the ranks and ends them together.",
      "deepspeed"};
  app.formatter(std::make_shared<HelpText>());
  app.set_version_flag("--version", std::string("deepspeed-cpp ") + version());
  app.prefix_command();
  RawArgs raw;
  add_resource_flags(app, raw);
  add_run_flags(app, raw);
  add_machine_flags(app, raw);
  add_python_flags(app, raw);
  add_help_flags(app, raw);
  raw.unsupported.add_to(app);
  try {
    // CLI11 takes the words from the back.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    return {{}, app.help()};
  } catch (const CLI::CallForVersion&) {
    return {{}, app.version() + "\n"};
  } catch (const CLI::ParseError& error) {
    raise<UsageError>(error.what(), "; see deepspeed --help");
  }
  if (auto text = help_asked_for(app, raw)) return {{}, std::move(text)};
  raw.args.hostfile_given = app.count("--hostfile") > 0;
  raw.unsupported.refuse_given(app);
  forget_defaults(raw);
  check_conflicts(raw);
  take_machines(app, raw);
  take_number_of_ranks(raw);
  take_port_and_log_level(app, raw);
  take_program(app.remaining(), raw);
  return {raw.args, std::nullopt};
}

}  // namespace deepspeed::launcher
