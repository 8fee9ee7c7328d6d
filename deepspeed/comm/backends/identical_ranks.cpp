#include "deepspeed/comm/backends/identical_ranks.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "deepspeed/base/error.h"

namespace deepspeed::comm {
namespace {

// What `size` equal tensors reduce to; the other operations change nothing.
void reduce_with_copies(const at::Tensor& tensor, ReduceOp op, int size) {
  if (size == 1) return;
  if (op == ReduceOp::kSum) tensor.mul_(size);
  if (op == ReduceOp::kProduct) tensor.pow_(size);
  if (op == ReduceOp::kBxor && size % 2 == 0) tensor.zero_();
}

}  // namespace

at::Tensor IdenticalRanksGroup::block_of_this_rank(const at::Tensor& whole) const {
  const auto block = whole.numel() / description().size();
  return whole.view({-1}).narrow(0, description().rank * block, block);
}

Work IdenticalRanksGroup::start_all_reduce(const at::Tensor& tensor, ReduceOp op) {
  c10::NoGradGuard no_grad;
  reduce_with_copies(tensor, op, description().size());
  return finished_work();
}

Work IdenticalRanksGroup::start_broadcast(const at::Tensor&, int) { return finished_work(); }

Work IdenticalRanksGroup::start_all_gather(const at::Tensor& output, const at::Tensor& input) {
  c10::NoGradGuard no_grad;
  const auto blocks = output.view({description().size(), -1});
  // The input may be a block of the output: then that one copies onto itself.
  for (int i = 0; i < description().size(); ++i) {
    const auto block = blocks.select(0, i);
    if (block.const_data_ptr() != input.const_data_ptr()) block.copy_(input.view({-1}));
  }
  return finished_work();
}

Work IdenticalRanksGroup::start_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                               ReduceOp op) {
  c10::NoGradGuard no_grad;
  const auto block = block_of_this_rank(input);
  if (block.const_data_ptr() != output.const_data_ptr()) output.view({-1}).copy_(block);
  reduce_with_copies(output, op, description().size());
  return finished_work();
}

Work IdenticalRanksGroup::start_reduce_to_owners(const at::Tensor& tensor,
                                                 const std::vector<Interval>& owned) {
  c10::NoGradGuard no_grad;
  const Interval own = owned.at(description().rank);
  if (own.empty()) return finished_work();
  reduce_with_copies(tensor.detach().view({-1}).narrow(0, own.begin, own.numel()), ReduceOp::kSum,
                     description().size());
  return finished_work();
}

Work IdenticalRanksGroup::start_all_to_all(const at::Tensor& output, const at::Tensor& input) {
  return start_all_gather(output, block_of_this_rank(input).clone());
}

void IdenticalRanksGroup::check_peer(const char* call) const {
  if (description().size() == 1) {
    raise<UsageError>("comm", call, " of group '", description().name,
                      "': the group has one rank, and a rank cannot ", call, " to itself");
  }
}

Work IdenticalRanksGroup::start_send(const at::Tensor&, int, int) {
  check_peer("send");
  return finished_work();
}

Work IdenticalRanksGroup::start_recv(const at::Tensor&, int, int) {
  check_peer("recv");
  return finished_work();
}

Work IdenticalRanksGroup::start_barrier() { return finished_work(); }

}  // namespace deepspeed::comm
