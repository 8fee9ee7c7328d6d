#include "deepspeed/comm/group/still_ranks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "deepspeed/base/log.h"

namespace deepspeed::comm {
namespace {

// This many consecutive checks are conclusive. If a whole job was stopped, its ranks continue together,
// within a moment. A working disk releases its threads now and then.
constexpr int kLooksAtStopped = 2;
constexpr int kLooksAtHung = 5;

}  // namespace

const char* StillRanks::why_still(Seen& seen, const Motion& motion) {
  seen.num_stopped = motion.stopped != '\0' ? seen.num_stopped + 1 : 0;
  std::set<int64_t> still_hung;
  if (seen.num_hung > 0)
    std::ranges::set_intersection(seen.hung_threads, motion.hung_threads,
                                  std::inserter(still_hung, still_hung.end()));
  seen.num_hung = !still_hung.empty() ? seen.num_hung + 1 : (motion.hung_threads.empty() ? 0 : 1);
  seen.hung_threads = still_hung.empty() ? motion.hung_threads : std::move(still_hung);
  if (seen.num_stopped >= kLooksAtStopped)
    return motion.stopped == 't' ? "does not run: a debugger holds it (state t)"
                                 : "does not run: it is stopped (state T), until it is sent SIGCONT";
  return seen.num_hung >= kLooksAtHung ? "does not get on: a disk or a device does not answer it (state D)"
                                       : nullptr;
}

void StillRanks::look(const std::map<int, RankProcess>& processes, const std::vector<AwaitedCall>& awaited,
                      bool is_store_silent) {
  if (awaited.empty()) {
    seen_.clear();
    is_silence_told_ = false;
    return;
  }
  // If rank 0, which holds the store, runs on this machine, the search below finds it.
  if (is_store_silent && rank_ != 0 && !processes.contains(0) && !std::exchange(is_silence_told_, true))
    log::warning(
        "[comm] the store where ranks meet does not answer: the process that holds it (rank 0's, or the "
        "launcher's) is stopped, or its machine hangs or cannot be reached; rank ",
        rank_, " waits in ", awaited.front().call);
  std::map<int, std::string> calls;
  for (const AwaitedCall& each : awaited) {
    for (const int rank : each.global_ranks) calls.emplace(rank, each.call);
  }
  for (const auto& [rank, call] : calls) {
    const auto process = processes.find(rank);
    if (rank == rank_ || process == processes.end()) continue;
    Seen& seen = seen_[rank];
    const char* const why = why_still(seen, motion_of(process->second));
    if (why == nullptr || std::exchange(seen.is_told, true)) continue;
    log::warning("[comm] rank ", rank, " (process ", process->second.number, ") ", why, "; rank ", rank_,
                 " waits for it in ", call);
  }
}

}  // namespace deepspeed::comm
