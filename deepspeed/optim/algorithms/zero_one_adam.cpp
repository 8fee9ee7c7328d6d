// ZeroOneIntervals classifies each step: it renews the second moment, lies between renewals, or is local. A
// local step may end with an exchange. The intervals grow by powers of two.
#include "deepspeed/optim/algorithms/zero_one_adam.h"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/slices/slice_states.h"

namespace deepspeed::optim {

ZeroOneIntervals::ZeroOneIntervals(const ZeroOneOptions& options, int64_t steps) : options_(options) {
  while (steps_ < steps) advance();
}

void ZeroOneIntervals::advance() {
  if (is_local()) {
    if (++local_steps_ == options_.local_step_scaler) {
      local_steps_ = 0;
      local_interval_ = std::min(options_.local_step_clipper, 2 * local_interval_);
    }
  } else if (renews_variance() && ++renewals_ == options_.var_update_scaler) {
    renewals_ = 0;
    variance_interval_ *= 2;
  }
  ++steps_;
}

namespace {

constexpr const char* kChange = "momentum_accumulator";  // DeepSpeed's name
constexpr const char* kSharedWeights = "weights_of_last_exchange";
constexpr const char* kRates = "lrs";

}  // namespace

ZeroOneAdam::ZeroOneAdam(std::vector<ParamGroup> groups, const ZeroOneOptions& options)
    : Adam(std::move(groups), {.class_name = "ZeroOneAdam"}), options_(options) {}

GradientUse ZeroOneAdam::next_gradient() const {
  const ZeroOneIntervals next = intervals_.empty() ? ZeroOneIntervals(options_) : intervals_.begin()->second;
  return next.renews_variance() ? GradientUse::kMean : GradientUse::kOwn;
}

void ZeroOneAdam::step(const FlatSlice& slice, double gradient_scale) {
  ZeroOneIntervals& intervals = intervals_.try_emplace(slice.id, options_).first->second;
  const double beta1 = options_of(*this, slice).pair("betas").first;
  // Compression errors of gradients do not apply to what local steps change.
  if (intervals.is_first_local() && slice.ranks != nullptr) slice.ranks->forget(slice.group);
  if (intervals.is_local()) {
    step_locally(slice, gradient_scale, intervals.exchanges());
  } else if (intervals.renews_variance()) {
    step_uncorrected(slice, gradient_scale, std::nullopt);
  } else {
    FlatSlice with_mean = slice;
    with_mean.gradient = slice.gradient.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    with_mean.gradient.mul_(gradient_scale);
    if (slice.ranks != nullptr) slice.ranks->mean(slice.group, with_mean.gradient);
    step_uncorrected(with_mean, 1.0, std::pair{beta1, 1.0});
  }
  intervals.advance();
}

void ZeroOneAdam::step_locally(const FlatSlice& slice, double gradient_scale, bool exchanges) {
  const Hyperparameters& options = options_of(*this, slice);
  const double lr = options.number("lr"), eps = options.number("eps"), beta1 = options.pair("betas").first;
  Moments& moments = moments_of(slice);
  LocalSteps& local = local_[slice.id];
  if (local.weights.defined()) {
    follow_writes(slice.master.detach(), local);
  } else {
    local.weights = slice.master.detach().clone();
    local.change = at::zeros_like(local.weights);
  }
  moments.exp_avg.mul_(beta1).add_(slice.gradient, (1.0 - beta1) * gradient_scale);
  at::Tensor update = moments.exp_avg / moments.exp_avg_sq.sqrt().add_(eps);
  if (options.number("weight_decay") > 0.0) update.add_(slice.master, options.number("weight_decay"));
  local.change.add_(update, -lr);
  local.rates += lr;
  ++moments.step;
  at::Tensor weights = slice.master.detach();
  at::add_out(weights, local.weights, local.change);
  // With learning rates of 0 nothing has changed, so no momentum can be derived.
  if (exchanges && local.rates > 0.0) {
    exchange(slice, moments, local, eps);
    local_.erase(slice.id);
  }
  if (slice.low_precision.defined()) slice.low_precision.copy_(weights);
}

// If the program has changed the weights, equally on all ranks, local steps continue from the new values.
void ZeroOneAdam::follow_writes(const at::Tensor& weights, LocalSteps& local) {
  const at::Tensor is_written = weights.ne(local.weights + local.change);
  local.weights = at::where(is_written, weights, local.weights);
  local.change.masked_fill_(is_written, 0);
}

void ZeroOneAdam::exchange(const FlatSlice& slice, const Moments& moments, LocalSteps& local, double eps) {
  const at::Tensor scale = moments.exp_avg_sq.sqrt().add_(eps);
  const at::Tensor change = local.change.mul_(scale);
  if (slice.ranks != nullptr) slice.ranks->mean(slice.group, change);
  moments.exp_avg.copy_(change).mul_(-1.0 / local.rates);
  local.weights.addcdiv_(change, scale);
  slice.master.detach().copy_(local.weights);
}

void ZeroOneAdam::load_state(size_t slice_id, const SliceState& state) {
  Adam::load_state(slice_id, state);
  intervals_.insert_or_assign(slice_id, ZeroOneIntervals(options_, state.step));
  local_.erase(slice_id);
}

SliceState ZeroOneAdam::own_state(size_t slice_id) const {
  const auto found = local_.find(slice_id);
  if (found == local_.end()) return {};
  const LocalSteps& local = found->second;
  SliceState own = Adam::state(slice_id);
  std::erase_if(own.tensors, [](const auto& item) { return item.first != "exp_avg"; });
  own.tensors.emplace_back(kChange, local.change);
  own.tensors.emplace_back(kSharedWeights, local.weights);
  own.tensors.emplace_back(kRates, at::full({1}, local.rates, at::kDouble));
  return own;
}

void ZeroOneAdam::load_own_state(size_t slice_id, const SliceState& own, const at::Tensor& master) {
  local_.erase(slice_id);
  if (own.tensors.empty()) return;
  LocalSteps local;
  const auto options = master.options().dtype(at::kFloat).requires_grad(false);
  for (const auto& [name, tensor] : own.tensors) {
    if (name == kRates) {
      local.rates = tensor.item<double>();
      continue;
    }
    if (tensor.numel() != master.numel()) {
      raise<UsageError>("'", name, "' of a rank's own steps has ", tensor.numel(), " elements, expected ",
                        master.numel());
    }
    const at::Tensor copy = tensor.to(options, /*non_blocking=*/false, /*copy=*/true);
    if (name == "exp_avg") moments_at(slice_id).exp_avg = copy;
    if (name == kChange) local.change = copy;
    if (name == kSharedWeights) local.weights = copy;
  }
  if (!local.change.defined() || !local.weights.defined())
    raise<UsageError>("the state of a rank's own steps lacks '", kChange, "' or '", kSharedWeights, "'");
  master.detach().copy_(local.weights + local.change);
  local_[slice_id] = std::move(local);
}

int64_t ZeroOneAdam::state_bytes() const {
  int64_t bytes = Adam::state_bytes();
  for (const auto& [id, local] : local_)
    bytes += static_cast<int64_t>(local.weights.nbytes() + local.change.nbytes());
  return bytes;
}

}  // namespace deepspeed::optim
