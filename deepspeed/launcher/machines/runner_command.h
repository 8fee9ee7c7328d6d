// The command lines of the runners, which start `ds_node` on the machines of a job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/plan/environment.h"
#include "deepspeed/launcher/plan/hostfile.h"

namespace deepspeed::launcher {

/// Splits a text into words as a POSIX shell does, with quotes and backslashes. Nothing else has a meaning.
/// Throws UsageError, naming `flag`, for an unclosed quote.
DEEPSPEED_API std::vector<std::string> split_words(const std::string& text, const std::string& flag);

/// Quotes a text so that a shell reads it as one word. It suits POSIX shells, and csh for a text of one line.
DEEPSPEED_API std::string shell_word(const std::string& text);

/// Holds what a command line depends on. The user's program and its arguments travel by the link or by
/// variables instead.
struct RunnerJob {
  Runner runner = Runner::kPdsh;
  ResourcePool nodes;
  std::vector<std::string> runner_args;
  std::string node_program;            ///< the path of ds_node on every machine
  std::string hostfile;                ///< the user's; empty if there is none
  std::string host_list;               ///< a file with one host a line, for MVAPICH
  std::string job_id;                  ///< for pdsh
  std::vector<std::string> variables;  ///< names of variables for Open MPI to export
  std::optional<int> ssh_port;
  std::string slurm_comment;
};

/// Returns the command that starts `ds_node` on each machine. MPI and Slurm start it for each rank instead.
/// Throws UsageError if the runner cannot place these ranks. MPICH, Intel MPI, MVAPICH and Slurm need the
/// same number on each machine.
DEEPSPEED_API std::vector<std::string> runner_command(const RunnerJob& job);

/// Returns the command that runs `words`, quoted for the shell, on a host by ssh. If the job's runner is
/// pdsh, the command has the options that the user set for pdsh's ssh: PDSH_SSH_ARGS and PDSH_SSH_ARGS_APPEND
/// in `environment`.
std::vector<std::string> ssh_command(const RunnerJob& job, const std::string& host,
                                     const std::vector<std::string>& words, const Environment& environment);

/// Returns the variables to add for the runner itself (PDSH_RCMD_TYPE, UCX_TLS, MVAPICH's settings).
DEEPSPEED_API Environment runner_variables(const RunnerJob& job, const Environment& environment);

/// Throws UsageError if the runner cannot honour a given flag. MPI's runners place ranks by whole hosts of
/// the hostfile, so they accept neither filters nor numbers.
DEEPSPEED_API void check_runner_flags(const LaunchArgs& args);

/// Returns the name of a program that PATH has if the runner is installed.
const char* probe_of(Runner runner);

}  // namespace deepspeed::launcher
