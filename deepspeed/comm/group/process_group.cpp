#include "deepspeed/comm/group/process_group.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/group/group_impl.h"

namespace deepspeed::comm {
namespace {

class FinishedWork : public Work::Impl {
 public:
  void wait() override {}
  bool is_completed() const override { return true; }
};

ProcessGroup::Impl& checked(const std::shared_ptr<ProcessGroup::Impl>& impl) {
  if (!impl) {
    raise<UsageError>("comm", "the group is empty: this rank is not a member of it, or the world was left");
  }
  return *impl;
}

void check_tensor(const ProcessGroup::Impl& group, const char* collective, const char* what,
                  const at::Tensor& tensor) {
  const auto& name = group.description().name;
  if (!tensor.defined()) {
    raise<UsageError>("comm", collective, " of group '", name, "': ", what, " is an undefined tensor");
  }
  if (tensor.layout() != at::kStrided || !tensor.is_contiguous()) {
    raise<UsageError>("comm", collective, " of group '", name, "': ", what, " of sizes ", tensor.sizes(),
                      " is not contiguous; pass contiguous() of it");
  }
}

// `whole` holds one block of the size of `part` for every rank.
void check_blocks(const ProcessGroup::Impl& group, const char* collective, const char* whole_name,
                  const at::Tensor& whole, const char* part_name, const at::Tensor& part) {
  check_tensor(group, collective, whole_name, whole);
  check_tensor(group, collective, part_name, part);
  const auto& description = group.description();
  if (whole.numel() != part.numel() * description.size()) {
    raise<UsageError>("comm", collective, " of group '", description.name, "': ", whole_name, " has ",
                      whole.numel(), " elements, expected ", description.size(), " times the ", part.numel(),
                      " of ", part_name);
  }
  if (whole.scalar_type() != part.scalar_type() || whole.device() != part.device()) {
    raise<UsageError>("comm", collective, " of group '", description.name, "': ", whole_name, " is ",
                      whole.scalar_type(), " on ", whole.device(), ", but ", part_name, " is ",
                      part.scalar_type(), " on ", part.device());
  }
}

void check_rank(const ProcessGroup::Impl& group, const char* collective, const char* what, int rank) {
  const auto& description = group.description();
  if (rank < 0 || rank >= description.size()) {
    raise<UsageError>("comm", collective, " of group '", description.name, "': ", what, " is ", rank,
                      ", expected 0 to ", description.size() - 1);
  }
}

void check_reduction(const ProcessGroup::Impl& group, const char* collective, const at::Tensor& tensor,
                     ReduceOp op) {
  const auto refuse = [&](const char* what) {
    raise<UsageError>("comm", collective, " of group '", group.description().name, "': the tensor is ",
                      tensor.scalar_type(), " on ", tensor.device(), ", expected ", what);
  };
  const auto type = tensor.scalar_type();
  if (type == at::kBool) refuse("numbers; uint8 in place of bool");
  if (op == ReduceOp::kAvg && !at::isFloatingType(type)) {
    refuse("a floating type for an average; integers have a sum");
  }
  const bool is_bitwise = op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor;
  if (is_bitwise && (!at::isIntegralType(type, false) || !tensor.is_cpu())) {
    refuse("integers on the CPU for a bitwise operation");
  }
}

// Tags from 2^30 on are those of the collectives.
void check_tag(const ProcessGroup::Impl& group, const char* call, int tag) {
  if (tag < 0 || tag >= 1 << 30) {
    raise<UsageError>("comm", call, " of group '", group.description().name, "': the tag is ", tag,
                      ", expected 0 to 2^30 - 1");
  }
}

}  // namespace

Work finished_work() { return Work(std::make_shared<FinishedWork>()); }

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

ProcessGroup::Impl& ProcessGroup::enter() const {
  Impl& group = checked(impl_);
  group.set_caller({position_ ? position_->load() : -1, values_ ? values_->get() : nullptr});
  return group;
}

Work ProcessGroup::start_all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  auto& group = enter();
  check_tensor(group, "all_reduce", "the tensor", tensor);
  check_reduction(group, "all_reduce", tensor, op);
  return tensor.numel() == 0 ? finished_work() : group.start_all_reduce(tensor, op);
}

Work ProcessGroup::start_broadcast(const at::Tensor& tensor, int root) const {
  auto& group = enter();
  check_tensor(group, "broadcast", "the tensor", tensor);
  check_rank(group, "broadcast", "the root", root);
  return tensor.numel() == 0 ? finished_work() : group.start_broadcast(tensor, root);
}

Work ProcessGroup::start_all_gather(const at::Tensor& output, const at::Tensor& input) const {
  auto& group = enter();
  check_blocks(group, "all_gather", "output", output, "input", input);
  return output.numel() == 0 ? finished_work() : group.start_all_gather(output, input);
}

Work ProcessGroup::start_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                        ReduceOp op) const {
  auto& group = enter();
  check_blocks(group, "reduce_scatter", "input", input, "output", output);
  check_reduction(group, "reduce_scatter", input, op);
  return input.numel() == 0 ? finished_work() : group.start_reduce_scatter(output, input, op);
}

Work ProcessGroup::start_reduce_to_owners(const at::Tensor& tensor,
                                          const std::vector<Interval>& owned) const {
  auto& group = enter();
  check_tensor(group, "reduce_to_owners", "the tensor", tensor);
  bool fits = static_cast<int>(owned.size()) == size() && tensor.scalar_type() != at::kBool;
  int64_t end = 0;
  for (const Interval& interval : owned) {
    if (interval.empty()) continue;
    fits = fits && interval.begin >= end && interval.end <= tensor.numel();
    end = interval.end;
  }
  if (!fits) {
    raise<UsageError>("comm", "reduce_to_owners of group '", name(), "': expected numbers and ", size(),
                      " ascending intervals inside the ", tensor.numel(), " elements of the tensor");
  }
  return tensor.numel() == 0 ? finished_work() : group.start_reduce_to_owners(tensor, owned);
}

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

Work ProcessGroup::start_all_to_all(const at::Tensor& output, const at::Tensor& input) const {
  auto& group = enter();
  check_tensor(group, "all_to_all", "output", output);
  check_tensor(group, "all_to_all", "input", input);
  if (output.numel() != input.numel() || input.numel() % size() != 0 ||
      output.scalar_type() != input.scalar_type() || output.device() != input.device()) {
    raise<UsageError>("comm", "all_to_all of group '", name(), "': output has ", output.numel(), " of ",
                      output.scalar_type(), " on ", output.device(), ", input ", input.numel(), " of ",
                      input.scalar_type(), " on ", input.device(), ", expected the same, divisible by ",
                      size());
  }
  return input.numel() == 0 ? finished_work() : group.start_all_to_all(output, input);
}

void ProcessGroup::all_to_all(const at::Tensor& output, const at::Tensor& input) const {
  start_all_to_all(output, input).wait();
}

Work ProcessGroup::start_send(const at::Tensor& tensor, int destination, int tag) const {
  auto& group = enter();
  check_tensor(group, "send", "the tensor", tensor);
  check_rank(group, "send", "the destination", destination);
  check_tag(group, "send", tag);
  return group.start_send(tensor, destination, tag);
}

Work ProcessGroup::start_recv(const at::Tensor& tensor, int source, int tag) const {
  auto& group = enter();
  check_tensor(group, "recv", "the tensor", tensor);
  check_rank(group, "recv", "the source", source);
  check_tag(group, "recv", tag);
  return group.start_recv(tensor, source, tag);
}

void ProcessGroup::send(const at::Tensor& tensor, int destination, int tag) const {
  start_send(tensor, destination, tag).wait();
}

void ProcessGroup::recv(const at::Tensor& tensor, int source, int tag) const {
  start_recv(tensor, source, tag).wait();
}

Work ProcessGroup::start_barrier() const { return enter().start_barrier(); }

void ProcessGroup::barrier() const { start_barrier().wait(); }

void ProcessGroup::monitored_barrier(std::chrono::milliseconds timeout, bool wait_all_ranks) const {
  if (timeout.count() < 0) {
    raise<UsageError>("comm", "monitored_barrier of group '", name(), "': the timeout is ", timeout.count(),
                      " ms, expected 0 (the group's) or more");
  }
  enter().monitored_barrier(timeout.count() == 0 ? this->timeout() : timeout, wait_all_ranks);
}

}  // namespace deepspeed::comm
