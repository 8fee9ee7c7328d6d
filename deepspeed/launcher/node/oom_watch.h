// Tells a kill by the kernel's out-of-memory killer from another SIGKILL: the kernel counts its own kills.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace deepspeed::launcher {

/// The kills so far; nothing where the kernel does not show the counter.
struct OomCounters {
  std::optional<int64_t> cgroup;   ///< in this process's control group (version 2 or 1)
  std::optional<int64_t> machine;  ///< on the whole machine
};

/// Reads the counters. `root` is the root of the file system in which /proc and /sys are looked up.
OomCounters read_oom_counters(const std::filesystem::path& root = "/");

/// Returns a sentence on the cause of a SIGKILL between the two readings; empty where no counter moved.
std::string explain_sigkill(const OomCounters& before, const OomCounters& after);

/// Keeps a reading that is 30 to 60 s old: a process of many gigabytes takes its time to end after the kill,
/// and an older kill of another process must not be taken for the cause.
class OomWatch {
 public:
  OomWatch();
  /// Takes a new reading when the kept one is old enough; call it now and then.
  void refresh();
  /// Returns the sentence for a rank that has just ended by SIGKILL.
  std::string explain() const;

 private:
  std::chrono::steady_clock::time_point last_refresh_;
  OomCounters older_;
  OomCounters newer_;
};

}  // namespace deepspeed::launcher
