// The guard notices that ranks called different collectives, or left, within seconds instead of after the
// timeout. Internal to this folder.
//
// A thread looks a few times a second whether a collective has been under way for a second; then it writes
// this rank's latest calls into the job's store, and reads those of the ranks that wait as well. Over Gloo,
// calls that differ never meet: the tags of their messages differ (collective_call.h), so the ranks wait and
// compare, and nothing is sent while collectives end soon. Over NCCL calls that differ may end, with wrong
// results: there the thread also compares the hash of all calls so far with that of two other ranks, twice a
// second (sequence_check.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/watch/call_history.h"

namespace deepspeed::comm {

/// Under this prefix the store of a world has what guards, and who waits for other ranks, tell each other.
constexpr const char* kGuardStore = "guard/";

/// Watches the groups of a world. They are independent of each other, but for those in which one thread
/// calls: where it gives up one, the ranks that wait for it in another one are told.
class DivergenceGuard {
 public:
  /// Returns why all groups are to end, once they are to. Any thread may call it, at any time.
  using ReasonToEnd = std::function<std::optional<std::string>()>;

  /// Takes `store`, the guard's own (prefixed) one, and notes there that the rank is present. `reason_to_end`
  /// may be empty: then nothing ends the groups but what happens in them. neighbours: the ranks whose
  /// processes may be looked at, those of this machine; one that is stopped while this rank waits for it is
  /// named in the log.
  DivergenceGuard(c10::intrusive_ptr<c10d::Store> store, int rank, ReasonToEnd reason_to_end = {},
                  const std::vector<int>& neighbours = {});
  /// Ends without a wait.
  ~DivergenceGuard();
  DivergenceGuard(const DivergenceGuard&) = delete;
  DivergenceGuard& operator=(const DivergenceGuard&) = delete;

  /// Says how calls that differ are found: they cannot end, or they may and the guard compares.
  enum class Check { kByMessages, kByTheGuard };

  /// Returns the history of a new group, whose `key` is the same on all ranks. `on_divergence` is called from
  /// the guard's thread, at most once, with the text of the error, and must not block. complete: what
  /// complete_groups() calls.
  std::shared_ptr<CallHistory> watch(const std::string& key, const std::string& name,
                                     const std::vector<int>& global_ranks, Check check,
                                     std::function<void(const std::string&)> on_divergence,
                                     std::function<void()> complete = {});

  /// Tells those that wait that this rank calls nothing in the group `key` any more. The guard keeps
  /// `connections` until every rank of the group has let go of it, so that none of them meets a closed one
  /// while it reads what was sent. Waits for nothing.
  void let_go(const std::string& key, std::shared_ptr<void> connections);
  /// Lets all groups complete what they gave a device, one after the other.
  void complete_groups();
  /// Ends all groups: what is under way there and what comes fails with this reason, as do the calls of ranks
  /// that wait for this one. Takes at most half a second.
  void end_groups(const std::string& reason);
  /// Ends one group in the same way.
  void end_group(const std::string& key, const std::string& reason);
  /// Ends all groups where there is a reason to. Groups call it before each collective; the guard's thread
  /// looks as well, for ranks that wait for one that calls nothing.
  void end_groups_if_due();
  /// Says that from here on the calling thread only ends calls that it has begun.
  void end_calls_of_this_thread();

  /// Tells the other ranks what this rank called, and returns how that differs in the group `key` from what
  /// they called or whether one left, as far as they told. Takes at most `limit`.
  std::optional<std::string> explain(const std::string& key, std::chrono::milliseconds limit);
  /// Tells those that wait that this rank leaves, unless that is known, as all leave together. Ends the watch
  /// and lets go of the store. Takes at most twice `limit`. A second call does nothing.
  void leave(std::chrono::milliseconds limit, bool is_known);
  /// Closes, after leave(), what let_go() keeps.
  void close_connections();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace deepspeed::comm
