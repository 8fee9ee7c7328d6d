#include "deepspeed/comm/backends/identical_ranks.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"

namespace deepspeed::comm {
namespace {

// Reduces `size` equal tensors. Only sums, products and exclusive ors change the values.
void reduce_with_copies(const at::Tensor& tensor, ReduceOp op, int size) {
  if (size == 1) return;
  if (op == ReduceOp::kSum) tensor.mul_(size);
  if (op == ReduceOp::kProduct) tensor.pow_(size);
  if (op == ReduceOp::kBxor && size % 2 == 0) tensor.zero_();
}

// Performs each operation on this rank's tensors.
class OnOneRank {
 public:
  explicit OnOneRank(const GroupDescription& group) : group_(group) {}

  void operator()(const operations::AllReduce& call) const {
    reduce_with_copies(call.tensor, call.op, group_.size());
  }

  void operator()(const operations::Broadcast&) const {}

  void operator()(const operations::AllGather& call) const { repeat(call.output, call.input); }

  void operator()(const operations::ReduceScatter& call) const {
    const auto block = block_of_this_rank(call.input);
    if (block.const_data_ptr() != call.output.const_data_ptr()) call.output.view({-1}).copy_(block);
    reduce_with_copies(call.output, call.op, group_.size());
  }

  void operator()(const operations::ReduceToOwners& call) const {
    const Interval own = call.owned.at(group_.rank);
    if (own.empty()) return;
    reduce_with_copies(call.tensor.detach().view({-1}).narrow(0, own.begin, own.numel()), ReduceOp::kSum,
                       group_.size());
    put_own_sum(call.own, call.tensor, own);
  }

  void operator()(const operations::AllToAll& call) const {
    repeat(call.output, block_of_this_rank(call.input).clone());
  }

  void operator()(const operations::Send& call) const { check_peer(call.kName); }
  void operator()(const operations::Recv& call) const { check_peer(call.kName); }
  void operator()(const operations::Barrier&) const {}
  void operator()(const operations::MonitoredBarrier&) const {}

 private:
  at::Tensor block_of_this_rank(const at::Tensor& whole) const {
    const auto block = whole.numel() / group_.size();
    return whole.view({-1}).narrow(0, group_.rank * block, block);
  }

  // The input may be a block of the output, which then stays unchanged.
  void repeat(const at::Tensor& output, const at::Tensor& input) const {
    const auto blocks = output.view({group_.size(), -1});
    for (int i = 0; i < group_.size(); ++i) {
      const auto block = blocks.select(0, i);
      if (block.const_data_ptr() != input.const_data_ptr()) block.copy_(input.view({-1}));
    }
  }

  void check_peer(const char* call) const {
    if (group_.size() > 1) return;
    raise<UsageError>(call, " of group '", group_.name, "': the group has one rank, and a rank cannot ", call,
                      " to itself");
  }

  const GroupDescription& group_;
};

}  // namespace

Work IdenticalRanksGroup::run(const Operation& operation, const Caller&) {
  const c10::NoGradGuard no_grad;
  std::visit(OnOneRank(description()), operation);
  return Work(std::make_shared<FinishedWork>());
}

}  // namespace deepspeed::comm
