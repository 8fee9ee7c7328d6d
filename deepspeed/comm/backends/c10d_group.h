// Runs the collectives of a group by c10d. Internal to this folder; what differs between backends is in the
// table of backends (table.h) and the files of its rows.
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
  /// Makes a group that `guard` watches. `group` is connected over `backend`. `store` is the group's own
  /// (prefixed) one. `key` identifies the group and is the same on all ranks. `levels` runs collectives of
  /// CPU tensors in steps within and between nodes; null: nodes are ignored.
  static std::shared_ptr<C10dGroup> make(const Backend& backend, GroupDescription description,
                                         const std::string& key, c10::intrusive_ptr<c10d::ProcessGroup> group,
                                         c10::intrusive_ptr<c10d::Store> store,
                                         std::shared_ptr<DivergenceGuard> guard,
                                         std::unique_ptr<NodeLevels> levels = nullptr);
  /// Returns a handle whose release does not close the group's connections. The guard keeps the connections
  /// until all ranks of the group have released their handles.
  static std::shared_ptr<GroupImpl> closing_together(std::shared_ptr<C10dGroup> group);
  /// Aborts pending operations without waiting for ranks, but lets the device finish its work (complete()).
  ~C10dGroup() override;

  c10::intrusive_ptr<c10d::ProcessGroup> c10d_group() const override { return connection_.c10d_group(); }
  void give_up(const std::string& reason) override;
  void check() override;
  void complete() override;
  DeviceWork& device_work() { return device_work_; }

  /// Throws a CommError for the failure `reason` of `collective`, naming the rank to blame. Also makes the
  /// group unusable: later collectives throw the same error. `peer` is the other rank of a message. `lost` is
  /// the global rank that is known to have died; if unset, blame() finds out who failed.
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
  /// Starts a collective of all ranks. The Work's wait() also does this rank's part after it
  /// (Started::finish).
  Work start_collective(const Operation& operation, const Caller& caller);
  /// Starts a message between two ranks, which concerns no other ranks.
  Work start_message(const Operation& operation);
  /// Starts the operation in steps by nodes (NodeLevels) or on the group's own connection. `call` is a
  /// collective's number in the group's history, and the hash of the calls up to it.
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
  std::unique_ptr<NodeLevels> levels_;  // null: nodes are ignored
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<DivergenceGuard> guard_;
  std::shared_ptr<CallHistory> calls_;
  std::mutex messages_mutex_;
  std::vector<c10::weak_intrusive_ptr<c10d::Work>> messages_;  // weak because they hold tensors
  std::mutex monitored_barriers_mutex_;
  MonitoredBarriers monitored_barriers_;
  DeviceWork device_work_;
  std::atomic<bool> is_late_ = false, is_complete_ = false;  // state of the device after complete()
  std::atomic<bool> is_closed_ = false;
  std::mutex failure_mutex_;
  std::string failure_;  // empty if the group has not failed
};

}  // namespace deepspeed::comm
