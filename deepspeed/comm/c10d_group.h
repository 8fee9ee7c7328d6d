// A group whose collectives c10d runs. Internal to this folder; the backends' own choices are in gloo.cpp and
// nccl/.
#pragma once

#include <functional>
#include <mutex>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/comm/collectives.h"
#include "deepspeed/comm/group_impl.h"

namespace deepspeed::comm {

class C10dGroup : public ProcessGroup::Impl, public std::enable_shared_from_this<C10dGroup> {
 public:
  /// `store` is the group's own (prefixed) one.
  C10dGroup(GroupDescription description, c10::intrusive_ptr<c10d::ProcessGroup> group,
            c10::intrusive_ptr<c10d::Store> store);
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

  /// Turns the failure `reason` of `collective` into a CommError that names who is to blame, and makes the
  /// group unusable: later collectives throw the same error.
  [[noreturn]] void fail(const char* collective, std::chrono::milliseconds elapsed,
                         const std::string& reason);

 private:
  /// Starts c10d's operations and remembers what to do when they are done.
  Work start(const char* collective, at::DeviceType device, const std::function<Started()>& operations);
  c10::intrusive_ptr<c10d::Backend> backend_for(const at::Tensor& tensor) const;
  Route route_for(const at::Tensor& tensor);
  void remember(const Started& started);
  bool has_unfinished_operations();

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::unique_ptr<DirectExchange> direct_;  // CPU tensors over Gloo
  std::mutex operations_mutex_;
  std::vector<c10::weak_intrusive_ptr<c10d::Work>> operations_;  // weak: they hold tensors
  std::mutex failure_mutex_;
  std::string failure_;  // empty: none yet
};

}  // namespace deepspeed::comm
