// A history knows the latest collectives of one group on this rank, and which are under way. Internal to this
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

/// Records the calls of a group. Any thread may call.
class CallHistory {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  /// Says how far the group came, and the hash of all calls up to there (collective_call.h).
  struct Progress {
    uint64_t number = 0;
    uint64_t chain = 0;
  };

  /// Begins empty. kept: how many calls are remembered beside those under way.
  CallHistory(std::string group_name, std::vector<int> global_ranks, size_t kept = 64);

  /// Notes the call that is about to start, and the calling thread; its number counts from 1.
  Progress begin(const CollectiveCall& call);
  /// Notes the operations of the call `number`; it is done when they are. Until then it counts as under way.
  void started(uint64_t number, const Works& works);
  /// Notes that the program waits for the call, or no longer.
  void set_blocked(uint64_t number, bool is_blocked);

  /// Says that the program waits for a message with `peer`, a rank in the group, while it lives.
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

  /// Returns the oldest of each kind, collective and message, that is under way since `patience` or longer.
  std::vector<AwaitedCall> awaited(std::chrono::milliseconds patience);

  /// Says whether a call began at least `patience` ago and is not done.
  bool has_waited(std::chrono::milliseconds patience);
  bool has_unfinished_calls() { return has_waited(std::chrono::milliseconds(0)); }
  Progress progress();
  /// Returns the thread of the latest call (own_thread.h); 0: none yet.
  int64_t last_caller();
  /// Returns the chain up to the call `number`; nothing where it did not begin yet or is forgotten.
  std::optional<uint64_t> chain_at(uint64_t number);
  /// Reports at most `most` of the latest calls. What callers held is told of the last of these, or of all.
  GroupReport report(std::chrono::milliseconds patience, size_t most = 64, bool all_values = false);
  /// Reports that this rank gave up the group, after its last call.
  GroupReport leaving_report();

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    CollectiveCall call;
    uint64_t number = 0;
    uint64_t chain = 0;
    int64_t caller = 0;
    Clock::time_point begin;
    std::vector<c10::weak_intrusive_ptr<c10d::Work>> works = {};  // weak: they hold tensors
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
  std::deque<Entry> entries_;  // the latest ones, and all that are open
  Progress progress_;
  std::map<int64_t, OpenMessage> messages_;  // that are waited for, in their order
  int64_t num_messages_ = 0;
};

}  // namespace deepspeed::comm
