// Logs which ranks do not run while this one waits for them. Internal to this folder.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "deepspeed/comm/group/absent_ranks.h"

namespace deepspeed::comm {

/// Names a call that this rank waits for, and the ranks needed for it.
struct AwaitedCall {
  std::string call;  // "all_reduce #42 (sum of 1024 Float) of group 'world'"
  std::vector<int> global_ranks;
};

/// Inspects the processes of this machine. Sends nothing, since the rank that serves the store may be
/// stopped. A rank that computes is never named. For one thread only.
class StillRanks {
 public:
  explicit StillRanks(int rank) : rank_(rank) {}

  /// Checks the ranks that this rank waits for; to be called once a second. Logs a rank if several
  /// consecutive checks find it stopped, or find one of its threads waiting for a disk or device. Logs each
  /// rank only once as long as any call is awaited. `processes` are those of this machine, by rank.
  /// is_store_silent tells that the store has not answered for a while, which is also logged.
  void look(const std::map<int, RankProcess>& processes, const std::vector<AwaitedCall>& awaited,
            bool is_store_silent = false);

 private:
  struct Seen {
    int num_stopped = 0;  // consecutive checks
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
