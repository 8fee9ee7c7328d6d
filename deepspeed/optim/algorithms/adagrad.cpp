#include "deepspeed/optim/algorithms/adagrad.h"

#include "deepspeed/kernels/update.h"
#include "deepspeed/optim/slices/wide_copy.h"

namespace deepspeed::optim {
namespace {

std::vector<ParamGroup> with_adagrad_defaults(std::vector<ParamGroup> groups) {
  set_defaults(groups, {{"lr", 1e-2},
                        {"lr_decay", 0.0},
                        {"weight_decay", 0.0},
                        {"eps", 1e-10},
                        {"initial_accumulator_value", 0.0}});
  return groups;
}

const char* state_name(AdagradKind kind) { return kind == AdagradKind::kTorch ? "sum" : "exp_avg_sq"; }

}  // namespace

Adagrad::Adagrad(std::vector<ParamGroup> groups, AdagradKind kind, at::ScalarType state_dtype)
    : OptimizerWithStates(with_adagrad_defaults(std::move(groups)), {state_name(kind)}, state_dtype),
      kind_(kind) {}

std::string Adagrad::name() const { return kind_ == AdagradKind::kTorch ? "Adagrad" : "DeepSpeedCPUAdagrad"; }

void Adagrad::step(const FlatSlice& slice, double gradient_scale) {
  const Hyperparameters& group = options_of(*this, slice);
  SliceStates::Entry& entry = states_.of(slice, group.number("initial_accumulator_value"));
  const auto weight_decay = group.number("weight_decay");
  kernels::AdagradRule rule;
  rule.gradient_scale = gradient_scale;
  rule.l2_decay = weight_decay;
  rule.numerator_decay = kind_ == AdagradKind::kTorch ? weight_decay : 0.0;
  rule.lr = group.number("lr") / (1 + static_cast<double>(entry.step) * group.number("lr_decay"));
  rule.eps = group.number("eps");
  const WideCopy sum(entry.tensors[0]);
  kernels::update({slice.master,
                   slice.gradient,
                   slice.low_precision,
                   {{state_name(kind_), sum.wide()}},
                   slice.scale_on_device},
                  rule);
  sum.store();
  ++entry.step;
}

}  // namespace deepspeed::optim
