// Tells ranks that make a group whether the others can still come. Internal to this folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace deepspeed::comm {

/// Records the calling process as that of `rank`. Others on its machine then notice when it ends.
void note_presence(c10d::Store& store, int rank);
/// Records that the rank makes no more groups. `why` is, for example, "left the job".
void note_absence(c10d::Store& store, int rank, const std::string& why);

/// Identifies a process that can be seen from here: same machine, boot and container.
struct RankProcess {
  int64_t number = 0;  // the process id
  std::string begin;   // its start, in clock ticks since boot
};

/// Describes what a process does, as the system shows it.
struct Motion {
  bool has_ended = false;
  char stopped = '\0';             // the letter of its state, T or t, if it is stopped
  std::set<int64_t> hung_threads;  // ids of threads in uninterruptible waits for a disk or device
};

/// Returns the process with this id; nothing if it is not running.
std::optional<RankProcess> find_process(int64_t number);
Motion motion_of(const RankProcess& process);
/// Returns the process that note_presence() recorded for `rank`. Returns nothing if there is no record, or if
/// the process cannot be seen from here.
std::optional<RankProcess> read_process(c10d::Store& store, int rank);

/// Tells from the store and this machine which members of a group are absent. A rank that leaves records its
/// absence itself. If a process ends, other ranks on its machine notice, and record its absence for ranks
/// elsewhere.
class AbsentRanks {
 public:
  /// `neighbours` are the ranks on this machine, whose processes can be inspected.
  AbsentRanks(c10d::Store& store, std::vector<int> members, std::vector<int> neighbours);

  /// Returns a reason, "rank 2 left the job", if a member will not come. Otherwise returns nothing. Reads
  /// records only when new ones exist, so it may report an absence only once. Costs one message to the store
  /// while nothing changes.
  std::optional<std::string> find();
  /// Returns "rank 2 (process 4711) is stopped (state T)" for each stopped rank, or "".
  std::string describe_stopped();

 private:
  std::optional<std::string> find_noted();
  std::optional<std::string> find_ended();
  void read_processes();

  c10d::Store& store_;
  std::vector<int> members_, neighbours_;
  std::map<int, RankProcess> processes_;  // that can be seen from here
  int64_t num_noted_ = 0;
};

}  // namespace deepspeed::comm
