#include "deepspeed/optim/lamb.h"

#include <cmath>

#include <ATen/ops/clamp.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include "deepspeed/kernels/update.h"
#include "deepspeed/optim/whole_parameters.h"

namespace deepspeed::optim {
namespace {

constexpr const char* kWhere = "optim.lamb";

std::vector<ParamGroup> with_defaults(std::vector<ParamGroup> groups) {
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
  const auto eps = static_cast<float>(group.number("eps"));
  const bool inside = group.flag("eps_inside_sqrt");
  kernels::LambUpdateRule rule;
  rule.gradient_scale = static_cast<float>(gradient_scale);
  rule.beta1 = static_cast<float>(beta1);
  rule.one_minus_beta1 = static_cast<float>(1 - beta1);
  rule.beta2 = static_cast<float>(beta2);
  rule.one_minus_beta2 = static_cast<float>(1 - beta2);
  rule.eps_inside = inside ? eps : 0.0F;
  rule.eps_outside = inside ? 0.0F : eps;
  rule.weight_decay = static_cast<float>(group.number("weight_decay"));
  return rule;
}

double step_size(const Hyperparameters& group, int64_t step) {
  const auto [beta1, beta2] = group.pair("betas");
  const double t = static_cast<double>(step);
  const double correction =
      group.flag("bias_correction") ? std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t)) : 1.0;
  return group.number("lr") * correction;
}

// 0-d, and computed where the tensors lie: a CUDA device is not waited for.
at::Tensor coefficient(const Hyperparameters& group, const at::Tensor& weights, const at::Tensor& change) {
  const at::Tensor weight_norm = at::linalg_vector_norm(weights, 2, {}, false, at::kDouble);
  const at::Tensor change_norm = at::linalg_vector_norm(change, 2, {}, false, at::kDouble);
  const at::Tensor ratio =
      at::clamp(weight_norm.div(change_norm), group.number("min_coeff"), group.number("max_coeff"));
  return at::where(weight_norm.ne(0).logical_and(change_norm.ne(0)), ratio, at::ones_like(ratio))
      .to(at::kFloat);
}

}  // namespace

Lamb::Lamb(std::vector<ParamGroup> groups)
    : Optimizer(with_defaults(std::move(groups))), states_(kWhere, {"exp_avg", "exp_avg_sq"}) {}

void Lamb::step(const FlatSlice& slice, double gradient_scale) {
  const Hyperparameters& group = options_of(kWhere, *this, slice);
  const std::vector<Segment>& segments = whole_parameters(kWhere, slice);
  SliceStates::Entry& entry = states_.of(slice);
  const kernels::LambUpdateRule rule = update_rule(group, gradient_scale);
  kernels::SgdRule move;
  move.lr = static_cast<float>(step_size(group, entry.step + 1));
  std::vector<at::Tensor>& coeffs = coeffs_[slice.id];
  coeffs.clear();
  for (const Segment& segment : segments) {
    const auto part = [&](const at::Tensor& flat) {
      return flat.defined() ? flat.detach().narrow(0, segment.in_slice.begin, segment.in_slice.numel())
                            : flat;
    };
    const at::Tensor weights = part(slice.master);
    const at::Tensor change = at::empty_like(weights);
    kernels::update(
        kWhere,
        {weights,
         part(slice.gradient),
         {},
         {{"exp_avg", part(entry.tensors[0])}, {"exp_avg_sq", part(entry.tensors[1])}, {"update", change}}},
        rule);
    coeffs.push_back(coefficient(group, weights, change));
    kernels::update(kWhere, {weights, change.mul_(coeffs.back()), part(slice.low_precision), {}}, move);
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

}  // namespace deepspeed::optim
