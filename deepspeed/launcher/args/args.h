// The command line of the `deepspeed` program: DeepSpeed's flags, then PROGRAM and its own arguments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/log.h"

namespace deepspeed::launcher {

/// Names what starts the program on each machine, or for each rank.
enum class Runner { kPdsh, kSsh, kOpenMpi, kMpich, kIntelMpi, kMvapich, kSlurm };

/// Returns the runner that --launcher names (pdsh, ssh, openmpi, mpich, impi, mvapich, slurm; any case).
/// Throws UsageError for any other name.
DEEPSPEED_API Runner runner_from_name(const std::string& name);
/// Returns the runner's name for --launcher.
DEEPSPEED_API const char* name_of(Runner runner);

/// Returns whether the runner starts a program for each rank instead of each machine.
bool places_ranks(Runner runner);

/// Holds the parsed command line. Everything from PROGRAM on belongs to the program and reaches it unchanged.
struct LaunchArgs {
  std::string hostfile = "/job/hostfile";
  bool hostfile_given = false;
  std::string include;
  std::string exclude;
  std::optional<int> num_ranks;    ///< on each machine
  std::string num_ranks_flag;      ///< the flag that gave num_ranks; --num_gpus warns if there is no GPU
  std::optional<int> num_nodes;    ///< machines to use, the first of the hostfile
  std::optional<int> master_port;  ///< as given; the default is kDefaultMasterPort
  std::string master_addr;
  bool bind_cores_to_rank = false;
  std::string bind_core_list;
  std::string each_rank_log_dir;  ///< empty: output goes to the launcher's
  bool save_pid = false;
  std::optional<int> stop_grace_s;  ///< --stop_grace in seconds, if given (see kStopGraceVariable)
  log::Level log_level = log::Level::kInfo;
  std::string rank_log_level;  ///< the level's name, if the user gave one; the ranks use it too
  std::string program;         ///< if `module`, the name of a Python module
  bool module = false;
  bool no_python = false;      ///< runs a .py file as an executable
  bool no_local_rank = false;  ///< Python programs get no --local_rank argument
  std::vector<std::string> program_args;

  // For several machines.
  std::string world_info;  ///< {host: [slots]} as JSON in base64, instead of a hostfile
  Runner runner = Runner::kPdsh;
  bool runner_given = false;  ///< otherwise ssh replaces pdsh if that is not installed
  std::string runner_args;    ///< --launcher_args, words in shell syntax
  std::string slurm_comment;
  bool force_multi = false;  ///< uses the runner even for one machine
  bool no_ssh = false;       ///< starts only this machine's ranks; the user runs the command on the others
  std::optional<int> node_rank;  ///< this machine's number, if no_ssh
  bool no_ssh_check = false;
  std::optional<int> ssh_port;
  std::string venv_script;  ///< sourced on each machine before the program is searched
  bool elastic = false;     ///< restarts the job after a loss
  std::optional<int> min_nodes;
  std::optional<int> max_nodes;
  int max_restarts = 100;

  /// Returns whether Python runs the program. It runs modules, and .py files unless no_python is set.
  bool runs_python() const;
};

constexpr int kDefaultMasterPort = 29500;
/// Names the environment variable that is read if --stop_grace is not given.
constexpr const char* kStopGraceVariable = "DS_STOP_GRACE";

/// Holds what to do: print `text_to_print` if it is set, otherwise run with `args`.
struct ParsedArgs {
  LaunchArgs args;
  std::optional<std::string> text_to_print;
};

/// Parses the words after the program's own name. As in Python's argparse, a flag may be abbreviated, and the
/// last of several values counts. Throws UsageError for unknown flags, bad values and conflicting flags, and
/// NotSupportedError for what this version lacks. The message names the flag.
DEEPSPEED_API ParsedArgs parse_args(std::vector<std::string> words);

/// Describes a flag for front ends in other languages.
struct LaunchFlag {
  std::vector<std::string> names;  ///< including dashes, long names first
  std::string kind;                ///< "switch", "number" or "text"
  std::string default_value;       ///< empty if there is none
  std::string help;                ///< empty if --help does not list the flag
};

/// Lists the program's flags, except those that only print a text.
DEEPSPEED_API std::vector<LaunchFlag> launch_flags();

}  // namespace deepspeed::launcher
