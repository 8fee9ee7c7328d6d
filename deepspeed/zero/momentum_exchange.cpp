#include "deepspeed/zero/momentum_exchange.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/grad_stats.h"

namespace deepspeed::zero {

void MomentumExchange::Parts::add(const Interval& place) {
  in_flat.push_back(place);
  numel += place.numel();
}

at::Tensor MomentumExchange::Parts::collect(const at::Tensor& flat) const {
  const at::Tensor values = at::empty({numel}, flat.options().dtype(at::kFloat));
  int64_t begin = 0;
  for (const Interval& place : in_flat) {
    values.narrow(0, begin, place.numel()).copy_(flat.narrow(0, place.begin, place.numel()));
    begin += place.numel();
  }
  return values;
}

void MomentumExchange::Parts::spread(const at::Tensor& values, const at::Tensor& flat) const {
  int64_t begin = 0;
  for (const Interval& place : in_flat) {
    flat.narrow(0, place.begin, place.numel()).copy_(values.narrow(0, begin, place.numel()));
    begin += place.numel();
  }
}

MomentumExchange::MomentumExchange(const ParamStore& store, const optim::Optimizer& optimizer,
                                   const ZeroState& state, const comm::ProcessGroup& data)
    : store_(store), optimizer_(optimizer), state_(state), data_(data), num_loads_(state.num_loads()) {
  for (size_t index = 0; index < store.groups().size(); ++index) groups_.push_back(make_group(index));
}

MomentumExchange::Group MomentumExchange::make_group(size_t index) const {
  Group group;
  const StoredGroup& stored = store_.groups()[index];
  for (const PlacedParam& placed : stored.layout.params()) {
    if (placed.in_flat.empty()) continue;
    (stored.params[placed.index].tensor.dim() > 1 ? group.matrices : group.rest).add(placed.in_flat);
  }
  group.compressed = std::make_unique<comm::CompressedAllReduce>(data_, group.matrices.numel);
  return group;
}

at::Tensor MomentumExchange::momentum_of(size_t index) {
  Group& group = groups_[index];
  if (group.momentum.defined()) return group.momentum;
  const optim::SliceState state = state_.of(index).state;
  const auto found =
      std::ranges::find_if(state.tensors, [](const auto& one) { return one.first == "exp_avg"; });
  if (found == state.tensors.end())
    raise<UsageError>("optimizer ", optimizer_.name(), " has no state exp_avg, whose mean ranks exchange");
  if (!store_.partitions_states()) return found->second;
  group.momentum = at::empty({store_.groups()[index].layout.padded_numel()}, found->second.options());
  if (data_.size() > 1) {
    data_.all_gather(group.momentum, found->second.contiguous());
  } else {
    group.momentum.copy_(found->second);
  }
  return group.momentum;
}

void MomentumExchange::exchange(GradReducer& reducer, double gradient_scale) {
  if (std::exchange(num_loads_, state_.num_loads()) != state_.num_loads()) forget();
  for (size_t index = 0; index < groups_.size(); ++index) {
    Group& group = groups_[index];
    const double beta = optimizer_.param_groups()[index].options.pair("betas").first;
    const at::Tensor before = momentum_of(index), own = reducer.local_gradients(index);
    const at::Tensor result = at::zeros({own.numel()}, own.options().dtype(at::kFloat));
    const auto next = [&](const Parts& parts) {
      return parts.collect(before).mul_(beta).add_(parts.collect(own), (1.0 - beta) * gradient_scale);
    };
    const at::Tensor matrices = next(group.matrices), rest = next(group.rest);
    group.compressed->mean(matrices);
    if (data_.size() > 1 && rest.numel() > 0) data_.all_reduce(rest, comm::ReduceOp::kAvg);
    group.matrices.spread(matrices, result);
    group.rest.spread(rest, result);
    if (group.momentum.defined()) group.momentum.copy_(result.narrow(0, 0, group.momentum.numel()));
    reducer.set_gradients(index, result);
  }
}

at::Tensor MomentumExchange::mean_square(const GradReducer& reducer) const {
  const at::Tensor sum = at::zeros({1}, store_.options().dtype(at::kDouble));
  for (size_t index = 0; index < groups_.size(); ++index)
    sum.add_(kernels::sum_of_squares(reducer.local_gradients(index)));
  if (data_.size() > 1) data_.all_reduce(sum);
  return sum.div_(data_.size());
}

void MomentumExchange::forget() {
  for (Group& group : groups_) {
    group.compressed->reset();
    group.momentum.reset();
  }
}

int64_t MomentumExchange::bytes() const {
  int64_t bytes = 0;
  for (const Group& group : groups_) {
    bytes += group.compressed->bytes();
    if (group.momentum.defined()) bytes += int64_t(group.momentum.nbytes());
  }
  return bytes;
}

}  // namespace deepspeed::zero
