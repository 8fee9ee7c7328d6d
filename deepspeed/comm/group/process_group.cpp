#include "deepspeed/comm/group/process_group.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/group/group_impl.h"
#include "deepspeed/comm/group/held_values.h"

namespace deepspeed::comm {
namespace {

GroupImpl& checked(const std::shared_ptr<GroupImpl>& impl) {
  if (!impl) {
    raise<UsageError>("the group is empty: this rank is not a member of it, or the world was left");
  }
  return *impl;
}

// Returns whether the operation is a collective over an empty tensor, which makes no call. An empty message
// is still sent.
bool is_empty_collective(const Operation& operation) {
  if (std::holds_alternative<operations::Send>(operation) ||
      std::holds_alternative<operations::Recv>(operation)) {
    return false;
  }
  const at::Tensor whole = whole_tensor_of(operation);
  return whole.defined() && whole.numel() == 0;
}

}  // namespace

void Work::wait() {
  if (impl_) impl_->wait();
}
bool Work::is_completed() const { return !impl_ || impl_->is_completed(); }

int ProcessGroup::rank() const { return checked(impl_).description().rank; }
int ProcessGroup::size() const { return checked(impl_).description().size(); }
const std::string& ProcessGroup::name() const { return checked(impl_).description().name; }
const std::string& ProcessGroup::backend() const { return checked(impl_).description().backend; }
at::DeviceType ProcessGroup::device_type() const { return checked(impl_).description().device; }
const std::vector<int>& ProcessGroup::global_ranks() const {
  return checked(impl_).description().global_ranks;
}
std::chrono::milliseconds ProcessGroup::timeout() const { return checked(impl_).description().timeout; }
c10::intrusive_ptr<c10d::ProcessGroup> ProcessGroup::c10d_group() const {
  return checked(impl_).c10d_group();
}

ProcessGroup ProcessGroup::at_position(std::shared_ptr<const std::atomic<int64_t>> position) const {
  ProcessGroup group = *this;
  group.position_ = std::move(position);
  return group;
}

ProcessGroup ProcessGroup::holding(std::shared_ptr<const CurrentValues> values) const {
  ProcessGroup group = *this;
  group.values_ = std::move(values);
  return group;
}

void ProcessGroup::check() const { checked(impl_).check(); }
void ProcessGroup::complete() const { checked(impl_).complete(); }
void ProcessGroup::give_up(const std::string& reason) const { checked(impl_).give_up(reason); }

Work ProcessGroup::start(const Operation& operation) const {
  GroupImpl& group = checked(impl_);
  check_arguments(operation, group.description());
  if (is_empty_collective(operation)) return Work(std::make_shared<FinishedWork>());
  return group.start(operation, {position_ ? position_->load() : -1, values_ ? values_->get() : nullptr});
}

Work ProcessGroup::start_all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  return start(operations::AllReduce{tensor, op});
}
Work ProcessGroup::start_broadcast(const at::Tensor& tensor, int root) const {
  return start(operations::Broadcast{tensor, root});
}
Work ProcessGroup::start_all_gather(const at::Tensor& output, const at::Tensor& input) const {
  return start(operations::AllGather{output, input});
}
Work ProcessGroup::start_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                        ReduceOp op) const {
  return start(operations::ReduceScatter{output, input, op});
}
Work ProcessGroup::start_reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned,
                                          const OwnSum& own) const {
  return start(operations::ReduceToOwners{tensor, owned, own});
}
Work ProcessGroup::start_all_to_all(const at::Tensor& output, const at::Tensor& input) const {
  return start(operations::AllToAll{output, input});
}
Work ProcessGroup::start_send(const at::Tensor& tensor, int destination, int tag) const {
  return start(operations::Send{tensor, destination, tag});
}
Work ProcessGroup::start_recv(const at::Tensor& tensor, int source, int tag) const {
  return start(operations::Recv{tensor, source, tag});
}
Work ProcessGroup::start_barrier() const { return start(operations::Barrier{}); }

void ProcessGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  start_all_reduce(tensor, op).wait();
}
void ProcessGroup::broadcast(const at::Tensor& tensor, int root) const {
  start_broadcast(tensor, root).wait();
}
void ProcessGroup::all_gather(const at::Tensor& output, const at::Tensor& input) const {
  start_all_gather(output, input).wait();
}
void ProcessGroup::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) const {
  start_reduce_scatter(output, input, op).wait();
}
void ProcessGroup::reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned) const {
  start_reduce_to_owners(tensor, owned).wait();
}
void ProcessGroup::all_to_all(const at::Tensor& output, const at::Tensor& input) const {
  start_all_to_all(output, input).wait();
}
void ProcessGroup::send(const at::Tensor& tensor, int destination, int tag) const {
  start_send(tensor, destination, tag).wait();
}
void ProcessGroup::recv(const at::Tensor& tensor, int source, int tag) const {
  start_recv(tensor, source, tag).wait();
}
void ProcessGroup::barrier() const { start_barrier().wait(); }

void ProcessGroup::monitored_barrier(std::chrono::milliseconds timeout, bool wait_all_ranks) const {
  start(operations::MonitoredBarrier{timeout.count() == 0 ? this->timeout() : timeout, wait_all_ranks})
      .wait();
}

}  // namespace deepspeed::comm
