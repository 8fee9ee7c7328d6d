// Detects within seconds, not at the timeout, that ranks called different collectives or left. Internal to
// this folder.
//
// Several times a second a thread checks whether a collective has been unfinished for a second. If so, it
// writes this rank's latest calls to the job's store and reads those of other waiting ranks. Over Gloo,
// differing calls never match, because the tags of their messages differ (collective_call.h). The ranks then
// wait and compare. Nothing is sent while collectives finish quickly. Over NCCL, differing calls may finish
// with wrong results. There the thread also compares the hash of all calls so far with two other ranks, twice
// a second (sequence_check.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/watch/call_history.h"

namespace deepspeed::comm {

struct GuardState;

/// Prefix of the keys in a world's store that guards and waiting ranks use.
constexpr const char* kGuardStore = "guard/";

/// Watches the groups of a world. Groups are independent unless the same thread calls in them. If that thread
/// gives up one group, ranks that wait for it in another group are told.
class DivergenceGuard {
 public:
  /// Returns the reason to end all groups, once there is one. Any thread may call it at any time.
  using ReasonToEnd = std::function<std::optional<std::string>()>;

  /// Takes the guard's own (prefixed) `store` and records there that the rank is present. `reason_to_end` may
  /// be empty; then only events in the groups end them. `neighbours` are the ranks on this machine, whose
  /// processes can be inspected. If one is stopped while this rank waits for it, the log names it.
  DivergenceGuard(c10::intrusive_ptr<c10d::Store> store, int rank, ReasonToEnd reason_to_end = {},
                  const std::vector<int>& neighbours = {});
  /// Ends without waiting.
  ~DivergenceGuard();
  DivergenceGuard(const DivergenceGuard&) = delete;
  DivergenceGuard& operator=(const DivergenceGuard&) = delete;

  /// Tells how differing calls are noticed. kByMessages: the messages of the ranks do not match, so the calls
  /// cannot finish. kByTheGuard: the calls may finish, so the guard compares hashes of all calls.
  enum class Check { kByMessages, kByTheGuard };

  /// Starts watching a new group and returns its history. `key` is the same on all ranks. `on_divergence` is
  /// called at most once, with the text of the error, in the guard's thread or one that ends groups. It must
  /// not block. complete_groups() calls `complete`.
  std::shared_ptr<CallHistory> watch(const std::string& key, const std::string& name,
                                     const std::vector<int>& global_ranks, Check check,
                                     std::function<void(const std::string&)> on_divergence,
                                     std::function<void()> complete = {});

  /// Tells waiting ranks that this rank makes no more calls in the group `key`. The guard keeps `connections`
  /// until every rank of the group has let it go. So no rank finds connections closed while it still reads
  /// data. Does not wait.
  void let_go(const std::string& key, std::shared_ptr<void> connections);
  /// Lets all groups, one by one, complete the work they gave a device.
  void complete_groups();
  /// Ends all groups. Current and later calls fail with this reason, as do calls of ranks that wait for this
  /// one. Takes at most half a second.
  void end_groups(const std::string& reason);
  /// Ends one group in the way of end_groups().
  void end_group(const std::string& key, const std::string& reason);
  /// Ends all groups if `reason_to_end` of the constructor gives a reason. Groups call it before each
  /// collective. The guard's thread also checks, for ranks that wait while calling nothing.
  void end_groups_if_due();
  /// Declares that the calling thread starts no more collectives.
  void end_calls_of_this_thread();

  /// Tells the other ranks this rank's calls. Returns how calls in the group `key` differ, or that a rank
  /// left. Returns nothing if the other ranks' reports show no difference within `limit`.
  std::optional<std::string> explain(const std::string& key, std::chrono::milliseconds limit);
  /// Tells waiting ranks that this rank leaves. With `is_known` all ranks leave together, and none is told.
  /// Ends the watch and releases the store. Takes at most twice `limit`. Later calls do nothing.
  void leave(std::chrono::milliseconds limit, bool is_known);
  /// Closes the connections that the guard still keeps for let_go(). To be called after leave().
  void close_connections();

 private:
  std::shared_ptr<GuardState> state_;
};

}  // namespace deepspeed::comm
