// The command lines of the runners, as words: what starts `ds_node` on the machines of a job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/plan/environment.h"
#include "deepspeed/launcher/plan/hostfile.h"

namespace deepspeed::launcher {

/// Cuts a text into words as a POSIX shell does, with quotes and backslashes; nothing else has a meaning.
/// Throws UsageError, naming `flag`, for a quote that does not end.
DEEPSPEED_API std::vector<std::string> split_words(const std::string& text, const std::string& flag);

/// Returns what a shell (of POSIX, or csh for texts of one line) reads as one word that is the text.
DEEPSPEED_API std::string shell_word(const std::string& text);

/// What a command line depends on. Arguments of the user's program are not among it: they travel by the link
/// or by variables.
struct RunnerJob {
  Runner runner = Runner::kPdsh;
  ResourcePool nodes;
  std::vector<std::string> runner_args;
  std::string node_program;            ///< the path of ds_node, alike on all machines
  std::string hostfile;                ///< the user's; empty without one
  std::string host_list;               ///< a file with a line a host, for MVAPICH
  std::string job_id;                  ///< under pdsh
  std::vector<std::string> variables;  ///< names of those that Open MPI hands on
  std::optional<int> ssh_port;
  std::string slurm_comment;
};

/// Returns the command that starts `ds_node` on all machines, or, with MPI and Slurm, once a rank. Throws
/// UsageError where the runner cannot place these ranks: MPICH, Intel MPI, MVAPICH and Slurm want as many on
/// each machine.
DEEPSPEED_API std::vector<std::string> runner_command(const RunnerJob& job);

/// Returns the command that runs `words` on one host by ssh; the words are quoted for the shell there.
/// Without an own `runner` of ssh the options are those that the user has set for pdsh (PDSH_SSH_ARGS,
/// PDSH_SSH_ARGS_APPEND in `environment`).
std::vector<std::string> ssh_command(const RunnerJob& job, const std::string& host,
                                     const std::vector<std::string>& words, const Environment& environment);

/// Returns the variables that the runner itself needs (PDSH_RCMD_TYPE, UCX_TLS, MVAPICH's settings).
DEEPSPEED_API Environment runner_variables(const RunnerJob& job, const Environment& environment);

/// Throws UsageError where the runner does not honour a flag that is given: MPI's place ranks by whole hosts
/// of the hostfile, so they take neither filters nor numbers.
DEEPSPEED_API void check_runner_flags(const LaunchArgs& args);

/// Returns the program whose presence in PATH tells that the runner is installed.
const char* probe_of(Runner runner);

}  // namespace deepspeed::launcher
