// Holds the state of a guard and what its thread does with it. Internal to this folder.
//
// The thread runs look() several times a second. Over NCCL it compares the hashes of all calls
// (check_sequences()). If a call has been unfinished for a second, exchange() writes this rank's report to
// the store. It reads the reports of ranks in common groups and compares them. A deadlock counts only if a
// later report shows it again. give_up() tells the others the reason and then ends the groups of a verdict,
// and those that wait for this rank's thread. A released group keeps its connections until all its ranks are
// counted (count_let_go()). A second thread names the ranks of this machine that do not run
// (group/still_ranks.h), since the first one waits if the store's rank is stopped. Ranks of other machines
// show by heartbeats that they run (group/heartbeats.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/absent_ranks.h"
#include "deepspeed/comm/group/heartbeats.h"
#include "deepspeed/comm/watch/call_history.h"
#include "deepspeed/comm/watch/rank_report.h"
#include "deepspeed/comm/watch/sequence_check.h"

namespace deepspeed::comm {

/// Number of calls that a group remembers for hash comparison; ranks are never further apart.
inline constexpr size_t kKept = 4096;

struct GuardState {
  struct Watched {
    std::shared_ptr<CallHistory> history;
    std::function<void(const std::string&)> on_divergence;  // empty after it was called
    std::function<void()> complete;                         // may be empty
    std::vector<int> global_ranks;
    bool compares_hashes = false;  // Check::kByTheGuard
    bool is_let_go = false;
    bool is_counted = false;  // as one of the ranks that have released it
    std::shared_ptr<void> connections = nullptr;

    bool waits(std::chrono::milliseconds patience) const {
      return on_divergence && !is_let_go && history->has_waited(patience);
    }
  };
  class ExchangeTime;
  using Verdicts = std::vector<Verdict>;
  using Endings = std::vector<std::pair<std::function<void(const std::string&)>, std::string>>;

  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  std::function<std::optional<std::string>()> reason_to_end;  // may be empty

  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, Watched> groups;
  std::map<int, RankProcess> processes;  // of ranks on this machine
  bool has_thread = false;
  bool stopped = false;
  bool ended = false;  // the thread and the store are gone
  bool left = false;
  int64_t ending_thread = 0;                                            // makes no more calls; 0: unknown
  std::map<std::string, std::string> gave_up;                           // groups, with the reason
  uint64_t num_asked = 0;                                               // exchanges requested by callers
  uint64_t num_answered = 0;                                            // exchanges completed
  std::optional<std::chrono::steady_clock::time_point> exchange_begin;  // of the current one
  Verdicts answer;

  // Only the guard's thread uses the following members.
  int64_t serial = 0;
  std::map<std::pair<int, std::string>, int64_t>
      suspected;  // rank and deadlock -> serial of the report that showed it
  std::optional<SequenceCheck> sequences;
  bool is_absence_noted = false;
  std::set<int> unread;  // ranks of this machine whose processes are not read yet
  Heartbeats heartbeats;

  bool waits(std::chrono::milliseconds patience);
  bool has_left();
  bool makes_no_group();
  std::set<int> peers();
  /// Returns calls, unfinished for two seconds, of groups that have not ended. The caller holds `mutex`.
  std::vector<AwaitedCall> awaited_calls();
  std::map<std::string, SequenceCheck::Group> compared_groups();
  GroupReport report_of_group(Watched& group, std::chrono::milliseconds patience, size_t most) const;
  RankReport own_report(std::chrono::milliseconds patience, size_t most = 64);
  std::optional<RankReport> report_of(int peer);
  bool is_deadlock_again(const RankReport& other, const std::string& text);
  /// Exchanges reports with the other ranks, and returns what they show. Calls unfinished for `patience`
  /// count as waiting. `held_up` receives verdicts on groups in which other ranks will make no calls, even if
  /// no call waits there.
  Verdicts exchange(std::chrono::milliseconds patience, Verdicts* held_up = nullptr);
  Verdicts compare(const RankReport& own, Verdicts* held_up);
  void tell(const RankReport& report);
  Verdicts check_sequences();
  /// Reads which processes the other ranks of this machine are, since the store may not answer later.
  void read_processes();
  /// Sends heartbeats to ranks that cannot see this process, and checks theirs.
  void exchange_beats();
  void look();
  /// Ends the verdicts' groups. Also ends groups whose last caller is the same thread, if that thread waits
  /// there; with `everywhere`, in any case.
  void give_up(const Verdicts& verdicts, bool everywhere);
  /// Lets all groups complete the work they gave a device.
  void complete_groups();
  /// Records that all groups (or `only` one) end with this reason. Returns their on_divergence functions, to
  /// be called with the reason.
  Endings note_end(const std::string& reason, const std::string* only = nullptr);
  void end_groups_if_due();
  /// Tells the others the reason, then ends the groups. For threads other than the guard's.
  void tell_and_end_here(const Endings& endings);
  void tell_and_end(const Endings& endings);
  void count_let_go();
  bool is_let_go_by_all(const std::string& key, bool is_counted, size_t num_ranks);
  uint64_t ask();
  void stop();
  bool wait_for_answer(uint64_t number, std::chrono::milliseconds limit);
  static void serve(const std::shared_ptr<GuardState>& state);
  /// Inspects this machine's processes in a second thread, even if the store does not answer.
  static void watch_processes(const std::shared_ptr<GuardState>& state);
};

}  // namespace deepspeed::comm
