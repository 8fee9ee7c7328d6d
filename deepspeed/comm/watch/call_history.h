// Records the latest collectives of one group on this rank, and which are unfinished. Internal to this
// folder.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "deepspeed/comm/group/still_ranks.h"
#include "deepspeed/comm/watch/collective_call.h"
#include "deepspeed/comm/watch/rank_report.h"

namespace deepspeed::comm {

/// Records the calls of a group. Thread-safe.
class CallHistory {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  /// Holds the number of calls so far, and the hash of all of them (collective_call.h).
  struct Progress {
    uint64_t number = 0;
    uint64_t chain = 0;
  };

  /// Makes an empty history. It remembers the `kept` latest calls, and all unfinished ones.
  CallHistory(std::string group_name, std::vector<int> global_ranks, size_t kept = 64);

  /// Records a call that is about to start, with the calling thread. Numbers count from 1.
  Progress begin(const CollectiveCall& call);
  /// Records the works of the call `number`. The call is unfinished until they are done.
  void started(uint64_t number, const Works& works);
  /// Records whether the program is waiting for the call.
  void set_blocked(uint64_t number, bool is_blocked);

  /// Records during its lifetime that the program waits for a message with rank `peer`.
  class MessageWait {
   public:
    MessageWait(CallHistory& history, const char* name, int peer);
    ~MessageWait();
    MessageWait(const MessageWait&) = delete;
    MessageWait& operator=(const MessageWait&) = delete;

   private:
    CallHistory& history_;
    int64_t number_ = 0;
  };

  /// Returns the oldest unfinished collective and the longest wait for a message. Either is left out if it
  /// began less than `patience` ago.
  std::vector<AwaitedCall> awaited(std::chrono::milliseconds patience);

  /// Returns whether a call that began at least `patience` ago is unfinished.
  bool has_waited(std::chrono::milliseconds patience);
  bool has_unfinished_calls() { return has_waited(std::chrono::milliseconds(0)); }
  Progress progress();
  /// Returns the thread of the latest call (own_thread.h), or 0 before the first call.
  int64_t last_caller();
  /// Returns the hash of all calls up to `number`, if that call is remembered.
  std::optional<uint64_t> chain_at(uint64_t number);
  /// Returns a report of the `most` latest calls. The oldest call that has been unfinished for `patience` is
  /// reported as awaited; that call and all later ones are then included even beyond `most`. The callers'
  /// values are included for the last few calls, or with `all_values` for all.
  GroupReport report(std::chrono::milliseconds patience, size_t most = 64, bool all_values = false);
  /// Returns a report that this rank has left the group after its last call.
  GroupReport leaving_report();

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    CollectiveCall call;
    uint64_t number = 0;
    uint64_t chain = 0;
    int64_t caller = 0;
    Clock::time_point begin;
    std::vector<c10::weak_intrusive_ptr<c10d::Work>> works = {};  // weak because works hold tensors
    bool is_started = false;
    bool is_open = true;
    bool has_ended();
    bool is_blocked = false;
  };

  struct OpenMessage {
    const char* name;
    int peer;
    Clock::time_point begin;
  };

  static void tell(Entry& entry, bool with_values, GroupReport& report);
  Entry* find(uint64_t number);
  const Entry* oldest_open(Clock::time_point begun_before);
  int64_t recent_caller() const;

  std::string group_name_;
  std::vector<int> global_ranks_;
  size_t kept_;
  std::mutex mutex_;
  std::deque<Entry> entries_;  // the latest calls, and all unfinished ones
  Progress progress_;
  std::map<int64_t, OpenMessage> messages_;  // being waited for, in order
  int64_t num_messages_ = 0;
};

}  // namespace deepspeed::comm
