// c10d runs the collectives of this group. Internal to this folder; the backends' own choices are in the
// table and in the files of its rows.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/comm/backends/collectives.h"
#include "deepspeed/comm/backends/connection.h"
#include "deepspeed/comm/backends/device_work.h"
#include "deepspeed/comm/backends/nodes/node_levels.h"
#include "deepspeed/comm/backends/observed_group.h"
#include "deepspeed/comm/backends/table.h"
#include "deepspeed/comm/watch/call_history.h"
#include "deepspeed/comm/watch/divergence_guard.h"
#include "deepspeed/comm/watch/monitored_barrier.h"

namespace deepspeed::comm {

class C10dGroup : public ObservedGroup, public std::enable_shared_from_this<C10dGroup> {
 public:
  /// Makes a group. `group` is connected over `backend`. `store` is the group's own (prefixed) one; `key`
  /// names the group alike on all ranks. levels: what its CPU tensors can go by nodes over; null: nothing.
  static std::shared_ptr<C10dGroup> make(const Backend& backend, GroupDescription description,
                                         const std::string& key, c10::intrusive_ptr<c10d::ProcessGroup> group,
                                         c10::intrusive_ptr<c10d::Store> store,
                                         std::shared_ptr<DivergenceGuard> guard,
                                         std::unique_ptr<NodeLevels> levels = nullptr);
  /// Makes a handle over the group whose end closes nothing: the guard keeps the connections until all ranks
  /// of the group have let go of it.
  static std::shared_ptr<ProcessGroup::Impl> closing_together(std::shared_ptr<C10dGroup> group);
  /// Aborts what is under way, and waits for no rank, but lets the device end what it was given (complete()).
  ~C10dGroup() override;

  c10::intrusive_ptr<c10d::ProcessGroup> c10d_group() const override { return connection_.c10d_group(); }
  void give_up(const std::string& reason) override;
  void check() override;
  void complete() override;
  DeviceWork& device_work() { return device_work_; }

  /// Turns the failure `reason` of `collective` into a CommError that names who is to blame, and makes the
  /// group unusable: later collectives throw the same error.
  /// peer: the other rank of a message. lost: the global rank that is known to have died; nothing: the ranks
  /// find out who did.
  [[noreturn]] void fail(const std::string& collective, std::chrono::milliseconds elapsed,
                         const std::string& reason, std::optional<int> peer = {},
                         std::optional<int> lost = {});
  CallHistory& calls() { return *calls_; }

 private:
  C10dGroup(const Backend& backend, GroupDescription description, const std::string& key,
            c10::intrusive_ptr<c10d::ProcessGroup> group, c10::intrusive_ptr<c10d::Store> store,
            std::shared_ptr<DivergenceGuard> guard, std::unique_ptr<NodeLevels> levels);
  bool goes_by_nodes(const Operation& operation) const override;
  Work run(const Operation& operation, const Caller& caller) override;
  /// Starts what c10d does for a collective of all ranks, and remembers what to do when that is done.
  Work start_collective(const Operation& operation, const Caller& caller);
  /// Starts a message between two ranks, which the other ranks need not know of.
  Work start_message(const Operation& operation);
  /// Starts the operation by the way that there is for its tensor. call: the number and chain of a
  /// collective.
  Started start_by_route(const Operation& operation, at::DeviceType device, CallHistory::Progress call);
  void wait_at(const operations::MonitoredBarrier& barrier);
  void refuse_after_failure(const char* collective);
  void remember_message(const c10::intrusive_ptr<c10d::Work>& work);
  bool has_unfinished_operations();
  bool has_failed();
  void close();
  void abort();
  void end(const std::string& reason);

  const std::string key_;
  Connection connection_;
  std::unique_ptr<NodeLevels> levels_;  // null: nodes play no part
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<DivergenceGuard> guard_;
  std::shared_ptr<CallHistory> calls_;
  std::mutex messages_mutex_;
  std::vector<c10::weak_intrusive_ptr<c10d::Work>> messages_;  // weak: they hold tensors
  std::mutex monitored_barriers_mutex_;
  MonitoredBarriers monitored_barriers_;
  DeviceWork device_work_;
  std::atomic<bool> is_late_ = false, is_complete_ = false;  // the device, after complete()
  std::atomic<bool> is_closed_ = false;
  std::mutex failure_mutex_;
  std::string failure_;  // empty: none yet
};

}  // namespace deepspeed::comm
