// Distinguishes the out-of-memory killer from other senders of SIGKILL, because the kernel counts its own
// kills.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace deepspeed::launcher {

/// Counts the out-of-memory killer's kills so far. A counter that the kernel does not show is unset.
struct OomCounters {
  std::optional<int64_t> cgroup;   ///< in this process's control group (version 2 or 1)
  std::optional<int64_t> machine;  ///< on the whole machine
};

/// Reads the counters. /proc and /sys are looked up below `root`.
OomCounters read_oom_counters(const std::filesystem::path& root = "/");

/// Returns a sentence on the cause of a SIGKILL between two readings. It is empty if no counter changed.
std::string explain_sigkill(const OomCounters& before, const OomCounters& after);

/// Tells whether the out-of-memory killer may have ended a rank. It compares the counters with a reading that
/// is 30 to 60 s old: a process of many gigabytes takes time to end after its kill, but an older kill of
/// another process must not count as the cause.
class OomWatch {
 public:
  OomWatch();
  /// Takes a new reading if the kept one is old enough. Call it now and then.
  void refresh();
  /// Returns explain_sigkill()'s sentence for a rank that SIGKILL has just ended.
  std::string explain() const;

 private:
  std::chrono::steady_clock::time_point last_refresh_;
  OomCounters older_;
  OomCounters newer_;
};

}  // namespace deepspeed::launcher
