// The command line of the `deepspeed` program: flags as DeepSpeed names them, then PROGRAM and its own
// arguments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/log.h"

namespace deepspeed::launcher {

/// What starts the program of each machine, or of each rank.
enum class Runner { kPdsh, kSsh, kOpenMpi, kMpich, kIntelMpi, kMvapich, kSlurm };

/// Finds the runner that --launcher names (pdsh, ssh, openmpi, mpich, impi, mvapich, slurm; any case). Throws
/// UsageError for another name.
DEEPSPEED_API Runner runner_from_name(const std::string& name);
/// Returns the name that --launcher takes.
DEEPSPEED_API const char* name_of(Runner runner);

/// Returns whether the runner starts a program for each rank, not for each machine.
bool places_ranks(Runner runner);

/// The parsed command line. Everything from PROGRAM on belongs to the program and is passed to it unchanged.
struct LaunchArgs {
  std::string hostfile = "/job/hostfile";
  bool hostfile_given = false;
  std::string include;
  std::string exclude;
  std::optional<int> num_ranks;    ///< of each machine
  std::string num_ranks_flag;      ///< the name by which it was given: --num_gpus warns if there is no GPU
  std::optional<int> num_nodes;    ///< machines to use, from the top of the hostfile
  std::optional<int> master_port;  ///< as given; the default is kDefaultMasterPort
  std::string master_addr;
  bool bind_cores_to_rank = false;
  std::string bind_core_list;
  std::string each_rank_log_dir;  ///< empty: output is passed through
  bool save_pid = false;
  std::optional<int> stop_grace_s;  ///< seconds; as given, see kStopGraceVariable
  log::Level log_level = log::Level::kInfo;
  std::string rank_log_level;  ///< the level's name, if one was given: the ranks log at it too
  std::string program;         ///< with `module` the name of a Python module
  bool module = false;
  bool no_python = false;      ///< a .py file runs as the executable that it is
  bool no_local_rank = false;  ///< Python programs get no --local_rank argument
  std::vector<std::string> program_args;

  // Several machines.
  std::string world_info;  ///< {host: [slots]} as JSON in base64, in place of a hostfile
  Runner runner = Runner::kPdsh;
  bool runner_given = false;  ///< pdsh, the default, gives way to ssh if it is not installed
  std::string runner_args;    ///< of --launcher_args: words as a shell writes them
  std::string slurm_comment;
  bool force_multi = false;      ///< the runner starts one machine's ranks as well
  bool no_ssh = false;           ///< this machine's ranks alone: somebody runs the command on the others
  std::optional<int> node_rank;  ///< this machine's number, with no_ssh
  bool no_ssh_check = false;
  std::optional<int> ssh_port;
  std::string venv_script;  ///< sourced on each machine before the program is looked for
  bool elastic = false;     ///< the job starts again after a loss
  std::optional<int> min_nodes;
  std::optional<int> max_nodes;
  int max_restarts = 100;

  /// Whether Python runs the program: a module, or a .py file unless told otherwise.
  bool runs_python() const;
};

constexpr int kDefaultMasterPort = 29500;
/// Names the variable that stands for --stop_grace in launches without the flag.
constexpr const char* kStopGraceVariable = "DS_STOP_GRACE";

/// Holds arguments to run with, or a text to print (--help, --version, --help-config).
struct ParsedArgs {
  LaunchArgs args;
  std::optional<std::string> text_to_print;
};

/// Parses the words after the program's own name. As with Python's argparse, a flag may be abbreviated, and
/// the last of several values counts. Throws UsageError for unknown flags, bad values and flags that
/// contradict each other, NotSupportedError for what this version cannot do; the message names the flag.
DEEPSPEED_API ParsedArgs parse_args(const std::vector<std::string>& words);

/// Describes a flag to fronts in other languages.
struct LaunchFlag {
  std::vector<std::string> names;  ///< with their dashes, the long ones first
  std::string kind;                ///< "switch", "number" or "text"
  std::string default_value;       ///< empty without one
  std::string help;                ///< empty for a flag that --help does not list
};

/// Lists the flags of the program but for those that only print a text.
DEEPSPEED_API std::vector<LaunchFlag> launch_flags();

}  // namespace deepspeed::launcher
