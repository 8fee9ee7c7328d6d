// The command line of the `deepspeed` program: flags as DeepSpeed names them, then PROGRAM and its own
// arguments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/log.h"

namespace deepspeed::launcher {

/// The parsed command line. Everything from PROGRAM on belongs to the program and is passed to it unchanged.
struct LaunchArgs {
  std::string hostfile = "/job/hostfile";
  bool hostfile_given = false;
  std::string include;
  std::string exclude;
  std::optional<int> num_ranks;       ///< from --num_procs, --num_gpus or --num_accelerators
  bool num_ranks_means_gpus = false;  ///< --num_gpus: GPUs are needed, the CPU is no replacement
  std::optional<int> master_port;     ///< as given; the default is kDefaultMasterPort
  std::string master_addr;
  bool bind_cores_to_rank = false;
  std::string bind_core_list;
  std::string each_rank_log_dir;  ///< empty: output is passed through
  bool save_pid = false;
  std::optional<int> stop_grace_s;  ///< seconds; as given, see kStopGraceVariable
  log::Level log_level = log::Level::kInfo;
  std::string rank_log_level;  ///< the level's name, where one was given: the ranks log at it too
  std::string program;         ///< with `module` the name of a Python module
  bool module = false;
  bool no_python = false;      ///< a .py file runs as the executable that it is
  bool no_local_rank = false;  ///< Python programs get no --local_rank argument
  std::vector<std::string> program_args;

  /// Whether an interpreter of Python runs the program: a module, or a .py file unless told otherwise.
  bool runs_python() const;
};

constexpr int kDefaultMasterPort = 29500;
/// Names the variable that stands for --stop_grace in launches without the flag.
constexpr const char* kStopGraceVariable = "DS_STOP_GRACE";

/// Holds either arguments to run with, or a text to print on standard output before ending with code 0
/// (--help,
/// --version, --help-config).
struct ParsedArgs {
  LaunchArgs args;
  std::optional<std::string> text_to_print;
};

/// Parses the words after the program's own name. Throws UsageError for unknown flags, bad values and flags
/// that contradict each other, NotSupportedError for what this version cannot do; the message names the flag.
ParsedArgs parse_args(const std::vector<std::string>& words);

}  // namespace deepspeed::launcher
