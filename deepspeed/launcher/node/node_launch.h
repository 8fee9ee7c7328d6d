// Runs the ranks of one machine and ends them together. Two processes watch over each other: the caller, and
// a supervisor that it forks and that is the ranks' parent. The supervisor kills everything when the caller
// vanishes; the kernel kills the ranks, and the caller their orphans, when the supervisor vanishes.
#pragma once

#include <string>

#include "deepspeed/launcher/node/spawn.h"
#include "deepspeed/launcher/plan/plan_ranks.h"

namespace deepspeed::launcher {

/// Holds the signals that a launch waits for, in place of being interrupted, blocked for its lifetime.
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

/// Keeps this process's id in a file for scripts that want to signal the launcher; "": no file. Throws
/// IoError naming --save_pid.
class PidFile {
 public:
  explicit PidFile(const std::string& path);
  ~PidFile();
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;

 private:
  std::string path_;
};

/// Runs until no process of the launch is left. Returns 0 where every rank ended with 0, the code of the rank
/// that failed first (128 + signal for a signal), 128 + signal after a signal to the launcher, 126 where a
/// rank could not be started. Call it from a process with one thread.
int launch_node(const NodeLaunch& launch);

}  // namespace deepspeed::launcher
