#include "deepspeed/optim/adam.h"

#include <ATen/ops/zeros.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/adam.h"
#include "deepspeed/kernels/rounding_hash.h"
#include "deepspeed/optim/slice_state.h"

namespace deepspeed::optim {
namespace {

constexpr const char* kWhere = "optim.adam";

void set_default(Hyperparameters& options, const std::string& name, HyperparameterValue value) {
  if (!options.contains(name)) {
    options.set(name, std::move(value));
  }
}

std::vector<ParamGroup> with_defaults(std::vector<ParamGroup> groups) {
  for (ParamGroup& group : groups) {
    set_default(group.options, "lr", 1e-3);
    set_default(group.options, "betas", std::pair{0.9, 0.999});
    set_default(group.options, "eps", 1e-8);
    set_default(group.options, "weight_decay", 0.0);
    set_default(group.options, "bias_correction", true);
  }
  return groups;
}

}  // namespace

Adam::Adam(std::vector<ParamGroup> groups, const AdamOptions& options)
    : Optimizer(with_defaults(std::move(groups))), options_(options) {
  if (options.moment_dtype != at::kFloat && options.moment_dtype != at::kBFloat16) {
    raise<UsageError>(kWhere, "moment_dtype is ", options.moment_dtype, ", expected Float or BFloat16");
  }
}

Adam::Moments& Adam::moments_of(const FlatSlice& slice) {
  Moments& moments = moments_[slice.id];
  if (!moments.exp_avg.defined()) {
    const auto options = slice.master.options().dtype(options_.moment_dtype).requires_grad(false);
    moments.exp_avg = at::zeros({slice.master.numel()}, options);
    moments.exp_avg_sq = at::zeros({slice.master.numel()}, options);
  }
  check_state_numel(kWhere, slice, moments.exp_avg);
  if (moments.exp_avg.device() != slice.master.device()) {  // loaded from a file
    moments.exp_avg = moments.exp_avg.to(slice.master.device());
    moments.exp_avg_sq = moments.exp_avg_sq.to(slice.master.device());
  }
  return moments;
}

void Adam::step(const FlatSlice& slice, double gradient_scale) {
  if (slice.group >= param_groups().size()) {
    raise<UsageError>(kWhere, "slice ", slice.id, " names group ", slice.group, " of ",
                      param_groups().size());
  }
  const Hyperparameters& group = param_groups()[slice.group].options;
  Moments& moments = moments_of(slice);
  kernels::AdamStep step;
  step.lr = group.number("lr");
  std::tie(step.beta1, step.beta2) = group.pair("betas");
  step.eps = group.number("eps");
  step.weight_decay = group.number("weight_decay");
  step.adamw_mode = options_.adamw_mode;
  step.bias_correction = group.flag("bias_correction");
  step.step = moments.step + 1;
  step.gradient_scale = gradient_scale;
  step.rounding_seed =
      kernels::mix_bits(kernels::mix_bits(options_.rounding_seed ^ kernels::mix_bits(slice.id)) ^
                        static_cast<uint64_t>(step.step));
  kernels::adam({slice.master, slice.gradient, moments.exp_avg, moments.exp_avg_sq, slice.low_precision},
                step);
  moments.step = step.step;
}

SliceState Adam::state(size_t slice_id) const {
  const auto it = moments_.find(slice_id);
  if (it == moments_.end()) {
    return {};
  }
  return {{{"exp_avg", it->second.exp_avg}, {"exp_avg_sq", it->second.exp_avg_sq}}, it->second.step};
}

void Adam::load_state(size_t slice_id, const SliceState& state) {
  const auto copies = copy_state(kWhere, state, {"exp_avg", "exp_avg_sq"}, options_.moment_dtype);
  const auto it = moments_.find(slice_id);
  if (it != moments_.end() && it->second.exp_avg.numel() != copies[0].numel()) {
    raise<UsageError>(kWhere, "slice ", slice_id, " has ", it->second.exp_avg.numel(),
                      " elements, the state has ", copies[0].numel());
  }
  moments_[slice_id] = {copies[0], copies[1], state.step};
}

int64_t Adam::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& [id, moments] : moments_) {
    bytes += static_cast<int64_t>(moments.exp_avg.nbytes() + moments.exp_avg_sq.nbytes());
  }
  return bytes;
}

}  // namespace deepspeed::optim
