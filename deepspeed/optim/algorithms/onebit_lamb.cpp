// Before the freeze a step is Lamb's, and every rank then averages the coefficients of all parameters. The
// freeze stores a second copy of the second moments and records the scales of the momenta. After it a step
// first computes what it needs of whole parameters, combines that over the ranks that hold parts, and updates
// the weights last.
#include "deepspeed/optim/algorithms/onebit_lamb.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/update.h"
#include "deepspeed/optim/slices/whole_parameters.h"

namespace deepspeed::optim {
namespace {

constexpr const char* kAverage = "lamb_coeff_freeze";
constexpr const char* kLastFactor = "last_factor";
constexpr const char* kScaling = "scaling_coeff";

at::Tensor square_sum(const at::Tensor& values) {
  return at::linalg_vector_norm(values, 2, {}, false, at::kDouble).square_();
}

at::Tensor row(const at::Tensor& table, int64_t param_index) { return table[param_index]; }

std::vector<double> to_numbers(const at::Tensor& values) {
  const at::Tensor here = values.cpu();
  return {here.const_data_ptr<double>(), here.const_data_ptr<double>() + here.numel()};
}

const std::vector<double>* find_numbers(const SliceState& state, const char* name) {
  const auto found =
      std::ranges::find(state.numbers, name, &std::pair<std::string, std::vector<double>>::first);
  return found == state.numbers.end() ? nullptr : &found->second;
}

}  // namespace

OneBitLamb::OneBitLamb(std::vector<ParamGroup> groups, const OneBitLambOptions& options)
    : Lamb(without_bias_correction(std::move(groups)), {"exp_avg", "exp_avg_sq", "exp_avg_sq_fresh"}),
      options_(options) {}

bool OneBitLamb::all_frozen() const {
  return !numbers_.empty() &&
         std::ranges::none_of(numbers_, [](const auto& entry) { return entry.second.scaling.empty(); });
}

GradientUse OneBitLamb::next_gradient() const {
  return all_frozen() ? GradientUse::kMomentum : GradientUse::kMean;
}

std::vector<double> OneBitLamb::momentum_scaling(size_t group) const {
  const auto found = numbers_.find(group);
  return found == numbers_.end() ? std::vector<double>() : found->second.scaling;
}

OneBitLamb::OfParameters& OneBitLamb::numbers_of(const FlatSlice& slice) {
  OfParameters& numbers = numbers_[slice.id];
  const auto options = slice.master.options().dtype(at::kDouble).requires_grad(false);
  if (!numbers.average.defined()) {
    const auto count = static_cast<int64_t>(param_groups()[slice.group].param_names.size());
    numbers.average = at::zeros({count}, options);
    numbers.last_factor = at::ones_like(numbers.average);
  }
  numbers.average = numbers.average.to(options);  // they may come from a file
  numbers.last_factor = numbers.last_factor.to(options);
  return numbers;
}

void OneBitLamb::step(const FlatSlice& slice, double gradient_scale) {
  Hyperparameters options = options_of(*this, slice);
  options.set("bias_correction", false);  // a checkpoint may have it on
  FlatSlice own = slice;
  own.options = &options;
  const OfParameters& numbers = numbers_of(own);
  if (!numbers.scaling.empty()) return step_frozen(own);
  warm_up(own, gradient_scale);
}

void OneBitLamb::warm_up(const FlatSlice& slice, double gradient_scale) {
  Lamb::step(slice, gradient_scale);
  OfParameters& numbers = numbers_of(slice);
  const at::Tensor latest = at::zeros_like(numbers.average);
  const std::vector<at::Tensor>& coefficients = last_coefficients(slice.id);
  const std::vector<Segment>& segments = segments_of(slice);
  for (size_t index = 0; index < segments.size(); ++index) {
    // If several ranks share a parameter, the one with its first element reports it.
    if (segments[index].offset_in_param == 0)
      row(latest, segments[index].param_index).copy_(coefficients[index]);
  }
  if (slice.cut != nullptr) slice.cut->sum(latest);
  const double beta = options_.coeff_beta;
  numbers.average = at::where(latest == 1, numbers.average, numbers.average * beta + latest * (1 - beta));
  if (states_.of(slice).step >= options_.freeze_step) freeze(slice);
}

void OneBitLamb::freeze(const FlatSlice& slice) {
  const SliceStates::Entry& entry = states_.of(slice);
  OfParameters& numbers = numbers_of(slice);
  entry.tensors[2].copy_(entry.tensors[1]);
  numbers.last_factor.fill_(1.0);
  // Holds sums of squares and numbers of elements: the mean is over the whole parameter.
  const at::Tensor sums = at::zeros({numbers.average.numel(), 2}, numbers.average.options());
  for (const Segment& segment : segments_of(slice)) {
    row(sums, segment.param_index)[0].copy_(square_sum(part_of(entry.tensors[0], segment)));
    row(sums, segment.param_index)[1].fill_(static_cast<double>(segment.in_slice.numel()));
  }
  if (slice.cut != nullptr) slice.cut->sum(sums);
  numbers.momentum_scale = to_numbers((sums.select(1, 0) / sums.select(1, 1).clamp_min(1.0)).sqrt());
  make_scalings();
}

void OneBitLamb::make_scalings() {
  double sum = 0.0, count = 0.0;
  for (size_t group = 0; group < param_groups().size(); ++group) {
    const auto found = numbers_.find(group);
    if (found == numbers_.end() || found->second.momentum_scale.empty()) return;
    for (const double scale : found->second.momentum_scale) sum += scale;
    count += static_cast<double>(found->second.momentum_scale.size());
  }
  for (auto& [id, numbers] : numbers_) {
    // A momentum of zeros has no scale and needs none.
    for (const double scale : numbers.momentum_scale)
      numbers.scaling.push_back(scale > 0.0 ? sum / count / scale : 1.0);
    numbers.momentum_scale.clear();
  }
}

void OneBitLamb::step_frozen(const FlatSlice& slice) {
  const Hyperparameters& group = options_of(*this, slice);
  const auto [beta1, beta2] = group.pair("betas");
  const double eps = group.number("eps"), weight_decay = group.number("weight_decay");
  SliceStates::Entry& entry = states_.of(slice);
  OfParameters& numbers = numbers_of(slice);
  const at::Tensor &momentum = entry.tensors[0], &fresh = entry.tensors[2];
  const at::Tensor gradient = (slice.gradient - momentum * beta1).div_(1 - beta1);
  fresh.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
  momentum.copy_(slice.gradient);
  const at::Tensor scale = entry.tensors[1].sqrt().add_(eps);
  const at::Tensor ratio = scale / fresh.sqrt().add_(eps);
  const at::Tensor direction = momentum / scale;
  const at::Tensor change = weight_decay > 0.0 ? direction + slice.master.detach() * weight_decay : direction;

  const at::Tensor squares = at::zeros({numbers.average.numel(), 2}, numbers.average.options());
  const at::Tensor largest = at::zeros_like(numbers.average);
  for (const Segment& segment : segments_of(slice)) {
    if (segment.in_slice.empty()) continue;
    row(largest, segment.param_index).copy_(part_of(ratio, segment).max());
    if (weight_decay <= 0.0) continue;
    row(squares, segment.param_index)[0].copy_(square_sum(part_of(direction, segment)));
    row(squares, segment.param_index)[1].copy_(square_sum(part_of(change, segment)));
  }
  at::Tensor factor = largest;
  if (slice.cut != nullptr) slice.cut->max(largest);
  if (weight_decay > 0.0) {
    if (slice.cut != nullptr) slice.cut->sum(squares);
    const at::Tensor norms = squares.sqrt();
    const at::Tensor part = (norms.select(1, 0) / norms.select(1, 1)).clamp_max_(1.0);
    const at::Tensor known = at::where(norms.select(1, 1) > 0, part, at::ones_like(part));
    factor = largest * known + (1.0 - known);
  }
  factor = factor.clamp(options_.factor_min, options_.factor_max);
  factor = at::minimum(factor, numbers.last_factor * (1.0 + options_.factor_threshold));
  factor = at::maximum(factor, numbers.last_factor * (1.0 - options_.factor_threshold));
  numbers.last_factor = factor;
  const at::Tensor coefficients = (numbers.average * factor).to(change.scalar_type());

  kernels::SgdRule move;
  move.lr = group.number("lr");
  std::vector<at::Tensor>& last = last_coefficients(slice.id);
  last.clear();
  for (const Segment& segment : segments_of(slice)) {
    last.push_back(coefficients[segment.param_index]);
    kernels::update({part_of(slice.master, segment),
                     part_of(change, segment).mul_(last.back()),
                     part_of(slice.low_precision, segment),
                     {}},
                    move);
  }
  ++entry.step;
}

SliceState OneBitLamb::state(size_t slice_id) const {
  SliceState state = Lamb::state(slice_id);
  const auto found = numbers_.find(slice_id);
  if (found == numbers_.end() || state.tensors.empty()) return state;
  const OfParameters& numbers = found->second;
  state.numbers = {{kAverage, to_numbers(numbers.average)}, {kLastFactor, to_numbers(numbers.last_factor)}};
  if (!numbers.scaling.empty()) state.numbers.emplace_back(kScaling, numbers.scaling);
  return state;
}

void OneBitLamb::check_state(const SliceState& state) const {
  Lamb::check_state(state);
  if (state.step > 0 && find_numbers(state, kAverage) == nullptr) {
    raise<UsageError>("the state holds no '", kAverage, "' of its parameters, though it has made ",
                      state.step, " steps");
  }
}

void OneBitLamb::load_state(size_t slice_id, const SliceState& state) {
  check_state(state);
  Lamb::load_state(slice_id, state);
  numbers_.erase(slice_id);
  const std::vector<double>* const average = find_numbers(state, kAverage);
  if (average == nullptr) return;
  OfParameters& numbers = numbers_[slice_id];
  numbers.average = at::tensor(*average, at::kDouble);
  const std::vector<double>* const factor = find_numbers(state, kLastFactor);
  numbers.last_factor = factor != nullptr ? at::tensor(*factor, at::kDouble) : at::ones_like(numbers.average);
  // If the run has a later freeze_step, the scaling is computed again then.
  const std::vector<double>* const scaling = find_numbers(state, kScaling);
  if (scaling != nullptr && state.step >= options_.freeze_step) numbers.scaling = *scaling;
}

}  // namespace deepspeed::optim
