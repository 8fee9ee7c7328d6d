// A group whose collectives c10d runs. Internal to this folder; the backends' own choices are in the table
// and in the files of its rows.
#pragma once

#include <functional>
#include <mutex>
#include <optional>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/comm/backends/collectives.h"
#include "deepspeed/comm/backends/table.h"
#include "deepspeed/comm/group/group_impl.h"
#include "deepspeed/comm/watch/call_history.h"
#include "deepspeed/comm/watch/divergence_guard.h"
#include "deepspeed/comm/watch/monitored_barrier.h"

namespace deepspeed::comm {

class C10dGroup : public ProcessGroup::Impl, public std::enable_shared_from_this<C10dGroup> {
 public:
  /// `group` is connected over `backend`. `store` is the group's own (prefixed) one; `key` names the group
  /// alike on all ranks.
  static std::shared_ptr<C10dGroup> make(const Backend& backend, GroupDescription description,
                                         const std::string& key, c10::intrusive_ptr<c10d::ProcessGroup> group,
                                         c10::intrusive_ptr<c10d::Store> store,
                                         std::shared_ptr<DivergenceGuard> guard);
  /// The same for a handle whose end closes nothing: the guard keeps the connections until all ranks of the
  /// group have let go of it.
  static std::shared_ptr<ProcessGroup::Impl> closing_together(std::shared_ptr<C10dGroup> group);
  /// Aborts what is under way; waits for nobody.
  ~C10dGroup() override;

  c10::intrusive_ptr<c10d::ProcessGroup> c10d_group() const override { return group_; }

  Work start_all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  Work start_broadcast(const at::Tensor& tensor, int root) override;
  Work start_all_gather(const at::Tensor& output, const at::Tensor& input) override;
  Work start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  Work start_reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned) override;
  Work start_all_to_all(const at::Tensor& output, const at::Tensor& input) override;
  Work start_send(const at::Tensor& tensor, int destination, int tag) override;
  Work start_recv(const at::Tensor& tensor, int source, int tag) override;
  Work start_barrier() override;
  void monitored_barrier(std::chrono::milliseconds timeout, bool wait_all_ranks) override;

  /// Turns the failure `reason` of `collective` into a CommError that names who is to blame, and makes the
  /// group unusable: later collectives throw the same error.
  [[noreturn]] void fail(const char* collective, std::chrono::milliseconds elapsed,
                         const std::string& reason);
  CallHistory& calls() { return *calls_; }

 private:
  C10dGroup(GroupDescription description, const std::string& key,
            c10::intrusive_ptr<c10d::ProcessGroup> group, c10::intrusive_ptr<c10d::Store> store,
            std::shared_ptr<DivergenceGuard> guard);
  /// Starts c10d's operations (made by `operations` for a device and a tag) and remembers what to do when
  /// they are done.
  using Operations = std::function<Started(const Route& route)>;
  Work start(CollectiveCall call, at::DeviceType device, const Operations& operations);
  /// The same for a message between two ranks, which the other ranks need not know of.
  Work start_message(const char* call, const at::Tensor& tensor,
                     const std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&)>& operation);
  void refuse_after_failure(const char* collective);
  void remember_message(const c10::intrusive_ptr<c10d::Work>& work);
  bool has_unfinished_operations();
  void abort();
  void give_up(const std::string& reason);

  const std::string key_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<DivergenceGuard> guard_;
  std::shared_ptr<CallHistory> calls_;
  std::unique_ptr<DirectExchange> direct_;  // of CPU tensors; null: their backend does everything
  std::mutex messages_mutex_;
  std::vector<c10::weak_intrusive_ptr<c10d::Work>> messages_;  // weak: they hold tensors
  std::mutex monitored_barriers_mutex_;
  MonitoredBarriers monitored_barriers_;
  std::mutex failure_mutex_;
  std::string failure_;  // empty: none yet
};

}  // namespace deepspeed::comm
