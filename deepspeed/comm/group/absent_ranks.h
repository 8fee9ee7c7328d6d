// Ranks that wait for others to make a group ask here whether these can still come. Internal to this folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace deepspeed::comm {

/// Notes as which process the rank runs, so that others of its machine see when that ends.
void note_presence(c10d::Store& store, int rank);
/// Notes that the rank makes no group any more. why: "left the job".
void note_absence(c10d::Store& store, int rank, const std::string& why);

/// A process that can be seen from here: one of this machine, since its last start, and container.
struct RankProcess {
  int64_t number = 0;
  std::string begin;  // in ticks of the machine
};

/// Says what a process does, as the system shows it.
struct Motion {
  bool has_ended = false;
  char stopped = '\0';             // the letter of its state, T or t, where it is stopped
  std::set<int64_t> hung_threads;  // that wait for a disk or a device just now, and cannot be interrupted
};

/// Returns the process of this number; nothing where none runs.
std::optional<RankProcess> find_process(int64_t number);
Motion motion_of(const RankProcess& process);
/// Returns the process that the rank noted; nothing where it did not yet, or it cannot be seen from here.
std::optional<RankProcess> read_process(c10d::Store& store, int rank);

/// What the store and this machine tell of the members of one group. A rank that leaves notes it; the end of
/// a process, the ranks beside it see, and note it for those of other machines.
class AbsentRanks {
 public:
  /// neighbours: the ranks whose processes may be looked at, those of this machine.
  AbsentRanks(c10d::Store& store, std::vector<int> members, std::vector<int> neighbours);

  /// Returns "rank 2 left the job" where a member will not come any more. Costs one message while nothing
  /// changes.
  std::optional<std::string> find();
  /// Returns "rank 2 (process 4711) is stopped (state T)" of those that are; "" where none is.
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
