// Names in the log the ranks that do not run while this one waits for them. Internal to this folder.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "deepspeed/comm/group/absent_ranks.h"

namespace deepspeed::comm {

/// Names what this rank waits for, and the ranks that it takes.
struct AwaitedCall {
  std::string call;  // "all_reduce #42 (sum of 1024 Float) of group 'world'"
  std::vector<int> global_ranks;
};

/// Looks at the processes of this machine, and sends nothing: the rank that holds the store may be the one
/// that is stopped. One that computes, however long, is never named. One thread calls it.
class StillRanks {
 public:
  explicit StillRanks(int rank) : rank_(rank) {}

  /// Looks at those that this rank waits for. Is called once a second, and names one that is stopped, or of
  /// which one thread waits for a disk or a device, in several calls in a row: once, until nothing is
  /// awaited. is_store_silent: the store did not answer for a while.
  void look(const std::map<int, RankProcess>& processes, const std::vector<AwaitedCall>& awaited,
            bool is_store_silent = false);

 private:
  struct Seen {
    int num_stopped = 0;  // looks in a row
    int num_hung = 0;
    std::set<int64_t> hung_threads;  // in all of these
    bool is_told = false;
  };
  static const char* why_still(Seen& seen, const Motion& motion);

  int rank_;
  std::map<int, Seen> seen_;
  bool is_silence_told_ = false;
};

}  // namespace deepspeed::comm
