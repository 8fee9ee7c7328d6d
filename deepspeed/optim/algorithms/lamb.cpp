// A step computes each parameter's change in one pass, then its norms (summed over ranks if the parameter is
// cut) and the trust ratio. A second pass applies the change.
#include "deepspeed/optim/algorithms/lamb.h"

#include <cmath>
#include <utility>

#include <ATen/ops/clamp.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/kernels/update.h"
#include "deepspeed/optim/slices/whole_parameters.h"

namespace deepspeed::optim {
namespace {

std::vector<ParamGroup> with_lamb_defaults(std::vector<ParamGroup> groups) {
  set_defaults(groups, {{"lr", 1e-3},
                        {"bias_correction", true},
                        {"betas", std::pair{0.9, 0.999}},
                        {"eps", 1e-8},
                        {"eps_inside_sqrt", false},
                        {"weight_decay", 0.0},
                        {"max_coeff", 10.0},
                        {"min_coeff", 0.01}});
  return groups;
}

kernels::LambUpdateRule update_rule(const Hyperparameters& group, double gradient_scale) {
  const auto [beta1, beta2] = group.pair("betas");
  const auto eps = group.number("eps");
  const bool inside = group.flag("eps_inside_sqrt");
  kernels::LambUpdateRule rule;
  rule.gradient_scale = gradient_scale;
  rule.beta1 = beta1;
  rule.one_minus_beta1 = 1 - beta1;
  rule.beta2 = beta2;
  rule.one_minus_beta2 = 1 - beta2;
  rule.eps_inside = inside ? eps : 0.0;
  rule.eps_outside = inside ? 0.0 : eps;
  rule.weight_decay = group.number("weight_decay");
  return rule;
}

double step_size(const Hyperparameters& group, int64_t step) {
  const auto [beta1, beta2] = group.pair("betas");
  const double t = static_cast<double>(step);
  const double correction =
      group.flag("bias_correction") ? std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t)) : 1.0;
  return group.number("lr") * correction;
}

// Returns the norms of weights and change, (2) double, on the tensors' device without waiting for it.
at::Tensor norms_of(const at::Tensor& weights, const at::Tensor& change) {
  return at::stack({at::linalg_vector_norm(weights, 2, {}, false, at::kDouble),
                    at::linalg_vector_norm(change, 2, {}, false, at::kDouble)});
}

// Returns the trust ratio, 0-d, from the norms of a whole parameter.
at::Tensor coefficient(const Hyperparameters& group, const at::Tensor& norms, at::ScalarType dtype) {
  const at::Tensor ratio =
      at::clamp(norms[0].div(norms[1]), group.number("min_coeff"), group.number("max_coeff"));
  return at::where(norms[0].ne(0).logical_and(norms[1].ne(0)), ratio, at::ones_like(ratio)).to(dtype);
}

}  // namespace

Lamb::Lamb(std::vector<ParamGroup> groups) : Lamb(std::move(groups), {"exp_avg", "exp_avg_sq"}) {}

Lamb::Lamb(std::vector<ParamGroup> groups, std::vector<std::string> state_names)
    : OptimizerWithStates(with_lamb_defaults(std::move(groups)), std::move(state_names)) {}

at::Tensor Lamb::change_of(const FlatSlice& slice, const Segment& segment, double gradient_scale) {
  const SliceStates::Entry& entry = states_.of(slice);
  const at::Tensor weights = part_of(slice.master, segment);
  at::Tensor change = at::empty_like(weights);
  kernels::update({weights,
                   part_of(slice.gradient, segment),
                   {},
                   {{"exp_avg", part_of(entry.tensors[0], segment)},
                    {"exp_avg_sq", part_of(entry.tensors[1], segment)},
                    {"update", change}},
                   slice.scale_on_device},
                  update_rule(options_of(*this, slice), gradient_scale));
  return change;
}

// Makes one reduction for all of the group's parameters that partitions cut. Ranks without a part of them
// join in, since all ranks must call the same collectives.
std::unordered_map<int64_t, Lamb::CutChange> Lamb::changes_of_cut(const FlatSlice& slice,
                                                                  double gradient_scale) {
  std::unordered_map<int64_t, CutChange> changes;
  if (slice.cut == nullptr || slice.cut->all().empty()) {
    return changes;
  }
  const auto& cut = slice.cut->all();
  const auto options = slice.master.options().dtype(at::kDouble).requires_grad(false);
  const at::Tensor sums = at::zeros({static_cast<int64_t>(cut.size()), 2}, options);
  for (size_t i = 0; i < cut.size(); ++i) {
    const at::Tensor own = sums[static_cast<int64_t>(i)];
    const Segment* segment = find_segment(slice, cut[i].param_index);
    if (segment != nullptr) {
      const at::Tensor change = change_of(slice, *segment, gradient_scale);
      own.copy_(norms_of(part_of(slice.master, *segment), change).square_());
      changes[cut[i].param_index] = {change, own};
    }
  }
  slice.cut->sum(sums);
  sums.sqrt_();
  return changes;
}

void Lamb::step(const FlatSlice& slice, double gradient_scale) {
  const Hyperparameters& group = options_of(*this, slice);
  const std::vector<Segment>& segments = slice.cut == nullptr ? whole_parameters(slice) : segments_of(slice);
  SliceStates::Entry& entry = states_.of(slice);
  auto cut = changes_of_cut(slice, gradient_scale);
  kernels::SgdRule move;
  move.lr = step_size(group, entry.step + 1);
  std::vector<at::Tensor>& coeffs = coeffs_[slice.id];
  coeffs.clear();
  for (const Segment& segment : segments) {
    const at::Tensor weights = part_of(slice.master, segment);
    const auto shared = cut.find(segment.param_index);
    const at::Tensor change =
        shared != cut.end() ? shared->second.change : change_of(slice, segment, gradient_scale);
    coeffs.push_back(coefficient(group,
                                 shared != cut.end() ? shared->second.norms : norms_of(weights, change),
                                 weights.scalar_type()));
    kernels::update({weights, change.mul_(coeffs.back()), part_of(slice.low_precision, segment), {}}, move);
  }
  ++entry.step;
}

std::vector<double> Lamb::lamb_coeffs(size_t slice_id) const {
  std::vector<double> values;
  const auto it = coeffs_.find(slice_id);
  if (it != coeffs_.end()) {
    for (const at::Tensor& coeff : it->second) {
      values.push_back(coeff.item<double>());
    }
  }
  return values;
}

std::vector<double> Lamb::lamb_coeffs() const {
  std::vector<double> values;
  for (const auto& [slice_id, coeffs] : coeffs_) {
    for (const at::Tensor& coeff : coeffs) values.push_back(coeff.item<double>());
  }
  return values;
}

}  // namespace deepspeed::optim
