// Keeps Adam's state by slice, and chooses the kernel that steps it.
//
// step() gets the slice's moments from moments_of(). That makes them at first use, or converts what a
// checkpoint loaded to the slice's dtype and device. arguments_of() collects the group's hyperparameters, and
// one fused pass updates the slice. fp32 and bf16 moments have a kernel of their own. fp16 moments are
// widened to fp32 around it. amsgrad needs a third state and uses the kernel of general update rules. The
// seed of stochastic rounding mixes the slice's number and the step. So no two steps round in the same way,
// but a resumed run rounds like an uninterrupted one.
#include "deepspeed/optim/algorithms/adam.h"

#include <algorithm>

#include <ATen/ops/zeros.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/integers.h"
#include "deepspeed/kernels/update.h"
#include "deepspeed/optim/slices/slice_states.h"
#include "deepspeed/optim/slices/wide_copy.h"

namespace deepspeed::optim {
namespace {

std::vector<ParamGroup> with_adam_defaults(std::vector<ParamGroup> groups) {
  set_defaults(groups, {{"lr", 1e-3},
                        {"betas", std::pair{0.9, 0.999}},
                        {"eps", 1e-8},
                        {"weight_decay", 0.0},
                        {"bias_correction", true}});
  return groups;
}

}  // namespace

Adam::Adam(std::vector<ParamGroup> groups, const AdamOptions& options)
    : Optimizer(with_adam_defaults(std::move(groups))), options_(options) {
  if (options.moment_dtype != at::kFloat && options.moment_dtype != at::kBFloat16 &&
      options.moment_dtype != at::kHalf) {
    raise<UsageError>("moment_dtype is ", options.moment_dtype, ", expected Float, BFloat16 or Half");
  }
  if (options.amsgrad && options.moment_dtype != at::kFloat) {
    raise<UsageError>("amsgrad needs moments of dtype Float, got ", options.moment_dtype);
  }
}

Adam::Moments& Adam::moments_of(const FlatSlice& slice) {
  Moments& moments = moments_[slice.id];
  const auto options =
      slice.master.options().dtype(state_dtype_of(slice, options_.moment_dtype)).requires_grad(false);
  if (!moments.exp_avg.defined()) {
    moments.exp_avg = at::zeros({slice.master.numel()}, options);
    moments.exp_avg_sq = at::zeros({slice.master.numel()}, options);
    if (options_.amsgrad) {
      moments.max_exp_avg_sq = at::zeros({slice.master.numel()}, options);
    }
  }
  check_state_numel(slice, moments.exp_avg);
  if (!moments.exp_avg.options().type_equal(options) || moments.exp_avg.device() != options.device()) {
    moments.exp_avg = moments.exp_avg.to(options);  // a loaded state may have another dtype or device
    moments.exp_avg_sq = moments.exp_avg_sq.to(options);
    if (options_.amsgrad) {
      moments.max_exp_avg_sq = moments.max_exp_avg_sq.to(options);
    }
  }
  return moments;
}

void Adam::step_amsgrad(const FlatSlice& slice, const Moments& moments, const kernels::AdamStep& step) {
  kernels::update({slice.master,
                   slice.gradient,
                   slice.low_precision,
                   {{"exp_avg", moments.exp_avg},
                    {"exp_avg_sq", moments.exp_avg_sq},
                    {"max_exp_avg_sq", moments.max_exp_avg_sq}},
                   slice.scale_on_device},
                  kernels::amsgrad_rule(step));
}

// Runs the fused kernel. It supports fp32 and bf16 moments, so fp16 moments are widened around it.
void Adam::step_moments(const FlatSlice& slice, const Moments& moments, const kernels::AdamStep& step) {
  const auto step_by = [&](const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq) {
    kernels::adam(
        {slice.master, slice.gradient, exp_avg, exp_avg_sq, slice.low_precision, slice.scale_on_device},
        step);
  };
  if (options_.moment_dtype != at::kHalf) return step_by(moments.exp_avg, moments.exp_avg_sq);
  const WideCopy exp_avg(moments.exp_avg), exp_avg_sq(moments.exp_avg_sq);
  step_by(exp_avg.wide(), exp_avg_sq.wide());
  exp_avg.store();
  exp_avg_sq.store();
}

kernels::AdamStep Adam::arguments_of(const FlatSlice& slice, int64_t number, double gradient_scale) const {
  const Hyperparameters& group = options_of(*this, slice);
  kernels::AdamStep step;
  step.lr = group.number("lr");
  std::tie(step.beta1, step.beta2) = group.pair("betas");
  step.eps = group.number("eps");
  step.weight_decay = group.number("weight_decay");
  step.adamw_mode = options_.adamw_mode;
  step.bias_correction = group.flag("bias_correction");
  step.step = number;
  step.gradient_scale = gradient_scale;
  step.rounding_seed = mix_bits(mix_bits(options_.rounding_seed ^ mix_bits(slice.whole.value_or(slice.id))) ^
                                static_cast<uint64_t>(step.step));
  step.first_index = slice.begin_in_whole;
  return step;
}

void Adam::step(const FlatSlice& slice, double gradient_scale) {
  Moments& moments = moments_of(slice);
  const kernels::AdamStep step = arguments_of(slice, moments.step + 1, gradient_scale);
  if (options_.amsgrad) {
    step_amsgrad(slice, moments, step);
  } else {
    step_moments(slice, moments, step);
  }
  moments.step = step.step;
}

void Adam::forget_step(size_t slice_id) {
  Moments& moments = moments_.at(slice_id);
  if (--moments.step == 0 && !moments.is_loaded) moments_.erase(slice_id);
}

int64_t Adam::steps_of(size_t slice_id) const {
  const auto found = moments_.find(slice_id);
  return found == moments_.end() ? 0 : found->second.step;
}

bool Adam::all_have_made(int64_t steps) const {
  return !moments_.empty() &&
         std::ranges::all_of(moments_, [&](const auto& entry) { return entry.second.step >= steps; });
}

void Adam::step_uncorrected(const FlatSlice& slice, double gradient_scale,
                            const std::optional<std::pair<double, double>>& betas) {
  Hyperparameters options = options_of(*this, slice);
  options.set("bias_correction", false);
  if (betas) options.set("betas", *betas);
  FlatSlice own = slice;
  own.options = &options;
  Adam::step(own, gradient_scale);
}

void Adam::take_back(const FlatSlice& slice, double gradient_scale) {
  if (!takes_steps_back()) return Optimizer::take_back(slice, gradient_scale);
  Moments& moments = moments_of(slice);
  kernels::adam_rollback(
      {slice.master, slice.gradient, moments.exp_avg, moments.exp_avg_sq, slice.low_precision},
      arguments_of(slice, moments.step, gradient_scale));
  --moments.step;
}

SliceState Adam::state(size_t slice_id) const {
  const auto it = moments_.find(slice_id);
  if (it == moments_.end()) {
    return {};
  }
  SliceState state{{{"exp_avg", it->second.exp_avg}, {"exp_avg_sq", it->second.exp_avg_sq}}, it->second.step};
  if (options_.amsgrad) {
    state.tensors.emplace_back("max_exp_avg_sq", it->second.max_exp_avg_sq);
  }
  return state;
}

std::vector<std::string> Adam::state_names() const {
  std::vector<std::string> names = {"exp_avg", "exp_avg_sq"};
  if (options_.amsgrad) {
    names.emplace_back("max_exp_avg_sq");
  }
  return names;
}

void Adam::check_state(const SliceState& state) const { check_state_names(state, state_names()); }

void Adam::load_state(size_t slice_id, const SliceState& state) {
  const auto copies = copy_state(state, state_names(), options_.moment_dtype);
  const auto it = moments_.find(slice_id);
  if (it != moments_.end() && it->second.exp_avg.numel() != copies[0].numel()) {
    raise<UsageError>("slice ", slice_id, " has ", it->second.exp_avg.numel(), " elements, the state has ",
                      copies[0].numel());
  }
  moments_[slice_id] = {copies[0], copies[1], options_.amsgrad ? copies[2] : at::Tensor(), state.step, true};
}

int64_t Adam::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& [id, moments] : moments_) {
    bytes += static_cast<int64_t>(moments.exp_avg.nbytes() + moments.exp_avg_sq.nbytes());
    bytes += options_.amsgrad ? static_cast<int64_t>(moments.max_exp_avg_sq.nbytes()) : 0;
  }
  return bytes;
}

}  // namespace deepspeed::optim
