#include "deepspeed/optim/algorithms/lion.h"

#include "deepspeed/kernels/update.h"
#include "deepspeed/optim/slices/wide_copy.h"

namespace deepspeed::optim {
namespace {

std::vector<ParamGroup> with_lion_defaults(std::vector<ParamGroup> groups) {
  set_defaults(groups, {{"lr", 1e-3}, {"betas", std::pair{0.9, 0.999}}, {"weight_decay", 0.0}});
  return groups;
}

}  // namespace

Lion::Lion(std::vector<ParamGroup> groups, std::string class_name, at::ScalarType state_dtype)
    : OptimizerWithStates(with_lion_defaults(std::move(groups)), {"exp_avg"}, state_dtype),
      class_name_(std::move(class_name)) {}

void Lion::step(const FlatSlice& slice, double gradient_scale) {
  const Hyperparameters& group = options_of(*this, slice);
  const auto [beta1, beta2] = group.pair("betas");
  const double lr = group.number("lr");
  kernels::LionRule rule;
  rule.gradient_scale = gradient_scale;
  rule.beta1 = beta1;
  rule.one_minus_beta1 = 1 - beta1;
  rule.beta2 = beta2;
  rule.one_minus_beta2 = 1 - beta2;
  rule.lr = lr;
  rule.decay = lr * group.number("weight_decay");
  SliceStates::Entry& entry = states_.of(slice);
  const WideCopy exp_avg(entry.tensors[0]);
  kernels::update({slice.master,
                   slice.gradient,
                   slice.low_precision,
                   {{"exp_avg", exp_avg.wide()}},
                   slice.scale_on_device},
                  rule);
  exp_avg.store();
  ++entry.step;
}

}  // namespace deepspeed::optim
