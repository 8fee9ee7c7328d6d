// Runs the ranks of one machine and ends them together. Two processes watch each other: the caller, and a
// supervisor that it forks. The supervisor is the ranks' parent. If the caller vanishes, the supervisor kills
// everything. If the supervisor vanishes, the kernel kills the ranks and the caller kills their orphans.
#pragma once

#include <string>

#include "deepspeed/launcher/node/spawn.h"
#include "deepspeed/launcher/plan/plan_ranks.h"

namespace deepspeed::launcher {

/// Blocks the signals that a launch waits for, while this object exists.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  const sigset_t& watched() const { return watched_; }
  const SignalState& before() const { return before_; }

 private:
  sigset_t watched_;
  SignalState before_;
};

/// Keeps this process's id in a file, for scripts that signal the launcher. An empty path means no file.
/// Throws IoError, naming --save_pid, if the file cannot be written.
class PidFile {
 public:
  explicit PidFile(const std::string& path);
  ~PidFile();
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;

 private:
  std::string path_;
};

/// Starts the ranks, waits until no process of theirs is left, and returns an exit code. That is 0 if every
/// rank ended with 0, otherwise the code of the first rank that failed (128 + signal for a signal). After a
/// signal to the launcher it is 128 + signal, and 126 if a rank could not be started. The calling process
/// must have only one thread.
int launch_node(const NodeLaunch& launch);

}  // namespace deepspeed::launcher
