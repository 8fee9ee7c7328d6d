// What a guard knows, and what its thread does with it. Internal to this folder.
//
// A few times a second the thread looks (look()): over NCCL it compares the hashes of all calls
// (check_sequences()). Where a call has been under way for a second, exchange() tells this rank's report
// through the store, reads those of the ranks that it shares groups with, and compares them; a deadlock
// counts once a later report shows it again. give_up() then ends the groups that a verdict names, and those
// that wait for this rank's thread, after it told the others why. A group that was let go of keeps its
// connections until all its ranks are counted (count_let_go()). A second thread names the ranks of this
// machine that do not run (group/still_ranks.h): the first one waits where the rank of the store is stopped.
// Those of other machines show by a beat that they run (group/heartbeats.h).
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

#include "deepspeed/comm/group/absent_ranks.h"
#include "deepspeed/comm/group/heartbeats.h"
#include "deepspeed/comm/watch/divergence_guard.h"
#include "deepspeed/comm/watch/rank_report.h"
#include "deepspeed/comm/watch/sequence_check.h"

namespace deepspeed::comm {

/// Calls that a group remembers where hashes are compared: more than ranks are apart when they do.
inline constexpr size_t kKept = 4096;

struct DivergenceGuard::State {
  struct Watched {
    std::shared_ptr<CallHistory> history;
    std::function<void(const std::string&)> on_divergence;  // empty once it was called
    std::function<void()> complete;                         // may be empty
    std::vector<int> global_ranks;
    Check check;
    bool is_let_go = false;
    bool is_counted = false;  // among the ranks that have let go of it
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
  ReasonToEnd reason_to_end;

  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, Watched> groups;
  std::map<int, RankProcess> processes;  // of ranks that can be seen from here
  bool has_thread = false;
  bool stopped = false;
  bool ended = false;  // no thread any more, and no store
  bool left = false;
  int64_t ending_thread = 0;                   // calls nothing any more; 0: none is known
  std::map<std::string, std::string> gave_up;  // groups, and why
  uint64_t num_asked = 0;                      // exchanges that callers asked for
  uint64_t num_answered = 0;                   // those that were done
  std::optional<std::chrono::steady_clock::time_point> exchange_begin;  // of the one under way
  Verdicts answer;

  // The guard's thread alone uses what follows.
  int64_t serial = 0;
  std::map<std::pair<int, std::string>, int64_t> suspected;  // rank, deadlock: the report that showed it
  std::optional<SequenceCheck> sequences;
  bool is_absence_noted = false;
  std::set<int> unread;  // ranks of this machine whose processes were not read yet
  Heartbeats heartbeats;

  bool waits(std::chrono::milliseconds patience);
  bool has_left();
  bool makes_no_group();
  std::set<int> peers();
  /// Returns the calls that are under way for a while, of groups that have not ended. Needs the lock.
  std::vector<AwaitedCall> awaited_calls();
  std::map<std::string, SequenceCheck::Group> compared_groups();
  GroupReport report_of_group(Watched& group, std::chrono::milliseconds patience, size_t most) const;
  RankReport own_report(std::chrono::milliseconds patience, size_t most = 64);
  std::optional<RankReport> report_of(int peer);
  bool is_deadlock_again(const RankReport& other, const std::string& text);
  /// held_up: gets the groups that other ranks will not come to, whether something waits there or not.
  Verdicts exchange(std::chrono::milliseconds patience, Verdicts* held_up = nullptr);
  Verdicts compare(const RankReport& own, Verdicts* held_up);
  void tell(const RankReport& report);
  Verdicts check_sequences();
  /// Reads once which processes the neighbours are: later the store may not answer.
  void read_processes();
  /// Shows those that cannot see this process that it runs, and looks whether they do.
  void exchange_beats();
  void look();
  /// everywhere: also in groups where nothing is under way.
  void give_up(const Verdicts& verdicts, bool everywhere);
  /// Lets all groups complete what they gave a device.
  void complete_groups();
  /// Notes that all groups end with this reason; returns what is to be called then.
  Endings note_end(const std::string& reason, const std::string* only = nullptr);
  void end_groups_if_due();
  /// Tells the others, who look for the reason once connections close, and closes these.
  /// From another thread than the guard's.
  void tell_and_end_here(const Endings& endings);
  void tell_and_end(const Endings& endings);
  void count_let_go();
  bool is_let_go_by_all(const std::string& key, bool is_counted, size_t num_ranks);
  uint64_t ask();
  void stop();
  bool wait_for_answer(uint64_t number, std::chrono::milliseconds limit);
  static void serve(const std::shared_ptr<State>& state);
  /// Is what another thread does: it looks at processes, also while the store does not answer.
  static void watch_processes(const std::shared_ptr<State>& state);
};

}  // namespace deepspeed::comm
