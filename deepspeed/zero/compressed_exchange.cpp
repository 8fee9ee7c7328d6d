#include "deepspeed/zero/compressed_exchange.h"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/kernels/grad_stats.h"

namespace deepspeed::zero {
namespace {

// Prefixes the names of a group's state that only this rank has, among the tensors of all groups.
std::string own_prefix(size_t group) { return message("own.", group, "."); }

optim::SliceState own_state_in(const RankState& state, size_t group) {
  optim::SliceState own;
  const std::string prefix = own_prefix(group);
  for (const auto& [name, tensor] : state.tensors) {
    if (name.starts_with(prefix)) own.tensors.emplace_back(name.substr(prefix.size()), tensor);
  }
  return own;
}

}  // namespace

CompressedExchange::CompressedExchange(const ParamStore& store, optim::Optimizer& optimizer, ZeroState& state,
                                       const comm::ProcessGroup& data)
    : store_(store),
      optimizer_(optimizer),
      state_(state),
      data_(data),
      means_(store, data),
      num_loads_(state.num_loads()),
      momenta_(store.groups().size()) {}

at::Tensor CompressedExchange::momentum_of(size_t index) {
  at::Tensor& gathered = momenta_[index];
  if (gathered.defined()) return gathered;
  const optim::SliceState state = state_.of(index).state;
  const auto found =
      std::ranges::find_if(state.tensors, [](const auto& one) { return one.first == "exp_avg"; });
  if (found == state.tensors.end())
    raise<UsageError>("optimizer ", optimizer_.name(), " has no state exp_avg, whose mean ranks exchange");
  if (!store_.partitions_states()) return found->second;
  gathered = at::empty({store_.groups()[index].layout.padded_numel()}, found->second.options());
  if (data_.size() > 1) {
    data_.all_gather(gathered, found->second.contiguous());
  } else {
    gathered.copy_(found->second);
  }
  return gathered;
}

double CompressedExchange::exchange(GradReducer& reducer, double gradient_scale) {
  follow_loads();
  if (optimizer_.next_gradient() != optim::GradientUse::kMomentum) return gradient_scale;
  for (size_t index = 0; index < store_.groups().size(); ++index) {
    const double beta = optimizer_.param_groups()[index].options.pair("betas").first;
    const at::Tensor before = momentum_of(index);
    const at::Tensor own = reducer.local_gradients(index).narrow(0, 0, before.numel());
    at::Tensor result = (before * beta).add_(own, (1.0 - beta) * gradient_scale);
    means_.scaled_mean(index, result, optimizer_.momentum_scaling(index));
    if (store_.partitions_states()) before.copy_(result);
    reducer.set_gradients(index, std::move(result));
  }
  return 1.0;
}

at::Tensor CompressedExchange::mean_square(const GradReducer& reducer) const {
  at::Tensor sum = at::zeros({1}, store_.options().dtype(at::kDouble));
  for (size_t index = 0; index < store_.groups().size(); ++index)
    sum.add_(kernels::sum_of_squares(reducer.local_gradients(index)));
  if (data_.size() > 1) data_.all_reduce(sum);
  return sum.div_(data_.size());
}

RankState CompressedExchange::rank_state() const {
  // If the states were replaced since, the errors belong to the old ones and are left out.
  RankState state;
  state.num_ranks = data_.size();
  if (num_loads_ == state_.num_loads()) state.tensors = means_.errors();
  for (size_t index = 0; index < store_.groups().size(); ++index) {
    for (const auto& [name, tensor] : optimizer_.own_state(index).tensors)
      state.tensors.emplace_back(own_prefix(index) + name, tensor);
  }
  return state;
}

bool CompressedExchange::load_rank_state(const RankState& own) {
  forget();
  num_loads_ = state_.num_loads();
  if (own.num_ranks != data_.size() || !means_.load_errors(own.tensors)) return false;
  bool has_own = false;
  for (size_t index = 0; index < store_.groups().size(); ++index) {
    const optim::SliceState of_group = own_state_in(own, index);
    has_own = has_own || !of_group.tensors.empty();
    state_.change(index,
                  [&](const StateSlice& slice) { optimizer_.load_own_state(index, of_group, slice.master); });
  }
  if (has_own) state_.publish_masters();
  return true;
}

void CompressedExchange::forget() {
  means_.reset();
  momenta_.assign(momenta_.size(), {});
}

void CompressedExchange::follow_loads() {
  if (std::exchange(num_loads_, state_.num_loads()) != state_.num_loads()) forget();
}

int64_t CompressedExchange::bytes() const {
  int64_t bytes = means_.bytes();
  for (const at::Tensor& momentum : momenta_) {
    if (momentum.defined()) bytes += int64_t(momentum.nbytes());
  }
  return bytes;
}

}  // namespace deepspeed::zero
