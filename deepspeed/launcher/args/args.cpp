// Parses the command line in stages, so that each error names the flag at fault.
//
// Abbreviated flags are spelled out first. CLI11 then reads the flags up to PROGRAM (prefix_command) into
// RawArgs. All words after it stay as they are. Flags that only print a text (help, version) end here. Then
// come errors: for known flags that this version does not have, each with its way out, and for flags that
// contradict each other. PROGRAM is the first word that is left.
//
// Each flag is one line of an add_...() function. launch_flags() lists them for Python's argparse.
#include "deepspeed/launcher/args/args.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>

#include "deepspeed/base/error.h"
#include "deepspeed/base/version.h"
#include "deepspeed/config/help.h"

namespace deepspeed::launcher {
namespace {

constexpr const char* kNoFolder = "None";  // DeepSpeed's spelling

/// Holds the values that CLI11 stores, before they are checked against each other.
struct RawArgs {
  LaunchArgs args;
  std::string runner;
  std::string log_level = "info";
  bool quiet = false;
  std::string help_section;
  bool help_markdown = false;
};

/// Formats CLI11's help. The usage line shows where the program's own arguments go.
class HelpText : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: deepspeed [flags] PROGRAM [arguments of PROGRAM]\n";
  }
};

/// Lists DeepSpeed's flags that this version lacks, each with a way out.
constexpr std::pair<const char*, const char*> kMissingFlags[] = {
    {"--autotuning", "set the batch sizes and the ZeRO stage in the config"},
};

constexpr const char* kOnlyPrints = "Help";  // the group of flags that only print a text

/// Adds a flag that takes a number. The value -1, DeepSpeed's default, means "not given".
void add_count(CLI::App& app, const char* names, std::optional<int>& count, const char* help) {
  const auto take = [&count](const int& given) { count = given == -1 ? std::nullopt : std::optional(given); };
  app.add_option_function<int>(names, take, help)->default_str("-1");
}

void add_resource_flags(CLI::App& app, RawArgs& raw) {
  app.add_option("-H,--hostfile", raw.args.hostfile,
                 "Lines 'HOST slots=N': the machines and the ranks of each")
      ->capture_default_str();
  app.add_option("-i,--include", raw.args.include, "Hosts and slots to use: NAME[:SLOT,...][@NAME...]");
  app.add_option("-e,--exclude", raw.args.exclude, "Hosts and slots to leave out, same grammar");
  add_count(app, "--num_gpus,--num_accelerators,--num_procs", raw.args.num_ranks,
            "Number of ranks of each machine: one a GPU, or on the CPU if it has no GPU");
  add_count(app, "--num_nodes", raw.args.num_nodes, "Number of machines, from the top of the hostfile");
}

void add_run_flags(CLI::App& app, RawArgs& raw) {
  app.add_option("--master_port", raw.args.master_port, "Port at which the ranks meet")
      ->default_str(std::to_string(kDefaultMasterPort));
  app.add_option("--master_addr", raw.args.master_addr, "Address at which the ranks meet (127.0.0.1)");
  app.add_flag("--bind_cores_to_rank", raw.args.bind_cores_to_rank,
               "Give each rank its own share of the cores");
  app.add_option("--bind_core_list", raw.args.bind_core_list,
                 "Cores to share out, e.g. 0-3,8; switches --bind_cores_to_rank on");
  app.add_option("--enable_each_rank_log", raw.args.each_rank_log_dir,
                 "Folder for one log file a rank, in place of this terminal")
      ->default_str(kNoFolder);
  app.add_flag("--save_pid", raw.args.save_pid, "Keep this launcher's process id in /tmp/<id>.deepspeed");
  app.add_option("--stop_grace", raw.args.stop_grace_s,
                 "Seconds between a signal that is forwarded and the ranks' SIGKILL (30, or DS_STOP_GRACE)");
  app.add_option("--log_level", raw.log_level,
                 "debug, info, warning, error or critical: of the launcher and of the ranks")
      ->capture_default_str();
  app.add_flag("-q,--quiet", raw.quiet, "Same as --log_level error");
}

void add_machine_flags(CLI::App& app, RawArgs& raw) {
  LaunchArgs& args = raw.args;
  app.add_option("--launcher", raw.runner,
                 "pdsh, ssh, openmpi, mpich, impi, mvapich or slurm: what starts the other machines' ranks "
                 "(ssh if pdsh is missing)")
      ->default_str(name_of(Runner::kPdsh));
  app.add_option("--launcher_args", args.runner_args, "Arguments of that launcher, as one word");
  app.add_option("--slurm_comment", args.slurm_comment, "Comment of the Slurm job");
  app.add_option("--ssh_port", args.ssh_port, "Port of the machines' ssh servers");
  app.add_flag("--no_ssh_check", args.no_ssh_check,
               "Do not try the machines by ssh before MPI's launcher starts");
  app.add_flag("--no_ssh", args.no_ssh,
               "Start this machine's ranks alone; the command is run on each machine by somebody else");
  add_count(app, "--node_rank", args.node_rank, "This machine's number, with --no_ssh");
  app.add_flag("--force_multi", args.force_multi, "Use the launcher of several machines for one as well");
  app.add_option("--venv_script", args.venv_script, "Script to source on each machine first");
  app.add_flag("--elastic_training", args.elastic,
               "Start again on the machines that are left when one is lost or a rank fails");
  add_count(app, "--min_elastic_nodes", args.min_nodes, "Fewest machines to go on with (1)");
  add_count(app, "--max_elastic_nodes", args.max_nodes, "Most machines to use at a time (all)");
  app.add_option("--max_restarts", args.max_restarts, "How often an elastic job starts again")
      ->capture_default_str();
  app.add_option("--world_info", args.world_info)->group("");  // for deepspeed.launcher.launch
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
      ->type_name("[SECTION|WORD]")
      ->group(kOnlyPrints);
  app.add_flag("--help-config-markdown", raw.help_markdown, "Print docs/config.md and exit")
      ->group(kOnlyPrints);
  app.set_version_flag("--version", std::string("deepspeed-cpp ") + version())->group(kOnlyPrints);
  app.get_help_ptr()->group(kOnlyPrints);
}

void add_flags(CLI::App& app, RawArgs& raw) {
  app.prefix_command();
  app.option_defaults()->take_last();
  add_resource_flags(app, raw);
  add_run_flags(app, raw);
  add_machine_flags(app, raw);
  add_python_flags(app, raw);
  add_help_flags(app, raw);
  for (const auto& [flag, way_out] : kMissingFlags) app.add_option(flag)->group("");
}

/// Spells out abbreviated flags in front of PROGRAM, in `words`. Returns the full names, up to the first
/// unknown flag.
std::vector<std::string> spell_out_flags(const CLI::App& app, std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (size_t i = 0; i < words.size() && words[i].size() > 1 && words[i][0] == '-' && words[i] != "--"; ++i) {
    const size_t end = words[i].starts_with("--") ? std::min(words[i].find('='), words[i].size()) : 2;
    const std::string given = words[i].substr(0, end);
    std::vector<std::pair<std::string, const CLI::Option*>> found;
    for (const CLI::Option* option : app.get_options()) {
      if (option->check_name(given)) {
        found = {{given, option}};
        break;
      }
      for (const std::string& name : option->get_lnames())
        if (("--" + name).starts_with(given)) found.emplace_back("--" + name, option);
    }
    if (found.size() != 1) break;
    const auto& [name, option] = found.front();
    const bool takes_next = option->get_expected_min() > 0 && end == words[i].size();
    words[i].replace(0, end, name);
    names.push_back(name);
    if (takes_next) ++i;
  }
  return names;
}

/// Returns CLI11's error text with the flag as the user wrote it (`given`). CLI11 writes the flag's first
/// name instead.
std::string naming_as_given(const CLI::App& app, std::string text, const std::vector<std::string>& given) {
  for (const std::string& flag : given) {
    const std::string first = app.get_option(flag)->get_name();
    const size_t at = text.find(first + " = ");
    if (at != std::string::npos) text.replace(at, first.size(), flag);
  }
  return text;
}

/// Returns the text that --help-config or its markdown form prints; nothing if neither is given.
std::optional<std::string> help_asked_for(const CLI::App& app, const RawArgs& raw) {
  if (raw.help_markdown) return config::help_markdown();
  if (app.count("--help-config") > 0) return config::help_text(raw.help_section);
  return std::nullopt;
}

void check_at_least_one(const std::string& flag, const std::optional<int>& value) {
  if (value && *value < 1) raise<UsageError>(flag, " is ", *value, ", expected a number of 1 or more");
}

void check_port(const char* flag, const std::optional<int>& port) {
  if (port && (*port < 1 || *port > 65535)) raise<UsageError>(flag, " is ", *port, ", expected 1 to 65535");
}

void check_conflicts(const LaunchArgs& args) {
  if (args.module && args.no_python) {
    raise<UsageError>("--module and --no_python are both given, expected one of them: a module needs ",
                      "python to run it");
  }
  if (args.include.empty() && args.exclude.empty()) return;
  if (!args.include.empty() && !args.exclude.empty()) {
    raise<UsageError>("--include and --exclude are both given, expected one of them");
  }
  const char* filter = args.include.empty() ? "--exclude" : "--include";
  const std::pair<std::string, std::optional<int>> numbers[] = {{"--num_nodes", args.num_nodes},
                                                                {args.num_ranks_flag, args.num_ranks}};
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

/// Checks the flags for several machines.
void check_machines(const LaunchArgs& args) {
  check_at_least_one("--num_nodes", args.num_nodes);
  check_at_least_one("--min_elastic_nodes", args.min_nodes);
  check_at_least_one("--max_elastic_nodes", args.max_nodes);
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
  check_port("--ssh_port", args.ssh_port);
  if (args.max_restarts < 0)
    raise<UsageError>("--max_restarts is ", args.max_restarts, ", expected 0 or more");
  if (!args.slurm_comment.empty() && args.runner != Runner::kSlurm)
    raise<UsageError>("--slurm_comment is given without --launcher slurm, expected both or none");
  check_elastic(args);
}

/// Sets the arguments that depend on several flags, or on the name used for a flag.
void take_rest(const CLI::App& app, const std::vector<std::string>& flags, RawArgs& raw) {
  LaunchArgs& args = raw.args;
  args.hostfile_given = app.count("--hostfile") > 0;
  args.runner_given = app.count("--launcher") > 0;
  if (args.runner_given) args.runner = runner_from_name(raw.runner);
  for (const std::string& flag : flags)
    if (app.get_option("--num_gpus")->check_name(flag)) args.num_ranks_flag = flag;
  if (raw.quiet) raw.log_level = "error";
  args.log_level = log::level_from_name(raw.log_level);
  if (raw.quiet || app.count("--log_level") > 0) args.rank_log_level = raw.log_level;
  if (args.each_rank_log_dir == kNoFolder) args.each_rank_log_dir.clear();
  if (!args.bind_core_list.empty()) args.bind_cores_to_rank = true;
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

ParsedArgs parse_args(std::vector<std::string> words) {
  CLI::App app{
      "Starts PROGRAM once a rank on one machine or more, watches over the ranks and ends them together.",
      "deepspeed"};
  app.formatter(std::make_shared<HelpText>());
  RawArgs raw;
  add_flags(app, raw);
  const std::vector<std::string> flags = spell_out_flags(app, words);
  try {
    // CLI11 reads the words from back to front.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    return {{}, app.help()};
  } catch (const CLI::CallForVersion&) {
    return {{}, app.version() + "\n"};
  } catch (const CLI::ParseError& error) {
    raise<UsageError>(naming_as_given(app, error.what(), flags), "; see deepspeed --help");
  }
  if (auto text = help_asked_for(app, raw)) return {{}, std::move(text)};
  for (const auto& [flag, way_out] : kMissingFlags)
    if (app.count(flag) > 0) raise<NotSupportedError>(flag, " is not supported yet; ", way_out);
  take_rest(app, flags, raw);
  check_conflicts(raw.args);
  check_machines(raw.args);
  check_at_least_one(raw.args.num_ranks_flag, raw.args.num_ranks);
  check_at_least_one("--stop_grace", raw.args.stop_grace_s);
  check_port("--master_port", raw.args.master_port);
  take_program(app.remaining(), raw);
  return {raw.args, std::nullopt};
}

std::vector<LaunchFlag> launch_flags() {
  CLI::App app;
  RawArgs raw;
  add_flags(app, raw);
  std::vector<LaunchFlag> flags;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group() == kOnlyPrints) continue;
    LaunchFlag& flag = flags.emplace_back();
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    const bool is_switch = option->get_expected_max() == 0;
    flag.kind = is_switch ? "switch" : option->get_type_name() == "INT" ? "number" : "text";
    flag.default_value = option->get_default_str();
    if (!option->get_group().empty()) flag.help = option->get_description();
  }
  return flags;
}

}  // namespace deepspeed::launcher
