// Rules, inputs and comparisons that the tests of update() share.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/kernels/update.h"

namespace deepspeed::kernels {

// One of each rule, with every constant at work.
inline std::vector<UpdateRule> rules() {
  SgdRule sgd;
  sgd.gradient_scale = 0.5F, sgd.l2_decay = 0.1F, sgd.lr = 0.01F;
  MomentumSgdRule momentum;
  momentum.gradient_scale = 0.5F, momentum.l2_decay = 0.1F, momentum.lr = 0.01F;
  momentum.momentum = 0.9F, momentum.fresh = 0.8F, momentum.direct = 1, momentum.look_ahead = 0.9F;
  LionRule lion;
  lion.gradient_scale = 0.5F, lion.beta1 = 0.9F, lion.one_minus_beta1 = 0.1F, lion.beta2 = 0.99F;
  lion.one_minus_beta2 = 0.01F, lion.lr = 0.01F, lion.decay = 1e-3F;
  AdagradRule adagrad;
  adagrad.gradient_scale = 0.5F, adagrad.l2_decay = 0.1F, adagrad.numerator_decay = 0.1F;
  adagrad.lr = 0.01F, adagrad.eps = 1e-10F;
  AmsgradRule amsgrad;
  amsgrad.gradient_scale = 0.5F, amsgrad.l2_decay = 0.1F, amsgrad.beta1 = 0.9F,
  amsgrad.one_minus_beta1 = 0.1F;
  amsgrad.beta2 = 0.99F, amsgrad.one_minus_beta2 = 0.01F, amsgrad.eps = 1e-8F;
  amsgrad.decoupled_decay = 1e-3F, amsgrad.step_size = 0.01F, amsgrad.inverse_sqrt_bias2 = 1.5F;
  LambUpdateRule lamb;
  lamb.gradient_scale = 0.5F, lamb.beta1 = 0.9F, lamb.one_minus_beta1 = 0.1F, lamb.beta2 = 0.99F;
  lamb.one_minus_beta2 = 0.01F, lamb.eps_inside = 1e-6F, lamb.eps_outside = 1e-6F, lamb.weight_decay = 0.1F;
  MuonMomentumRule muon;
  muon.gradient_scale = 0.5F, muon.momentum = 0.95F, muon.one_minus_momentum = 0.05F;
  return {sgd, momentum, lion, adagrad, amsgrad, lamb, muon};
}

struct Arrays {
  at::Tensor master, gradient, low_precision;
  std::vector<at::Tensor> states;
  at::Tensor gradient_scale = {};  // in place of the rule's
};

inline int num_states(const UpdateRule& rule) {
  return std::visit([](const auto& r) { return r.kNumStates; }, rule);
}

inline bool writes_master(const UpdateRule& rule) {
  return std::visit([](const auto& r) { return kWritesMaster<std::decay_t<decltype(r)>>; }, rule);
}

// `margin` elements of 3 lie before and after each array that is written.
inline Arrays make(const UpdateRule& rule, int64_t numel, at::ScalarType gradient, at::ScalarType copy,
                   int64_t margin = 0) {
  const auto generator = at::detail::createCPUGenerator(5);
  const auto inner = [&](const at::Tensor& values) {
    const at::Tensor whole = at::full({numel + 2 * margin}, 3.0, values.options());
    whole.narrow(0, margin, numel).copy_(values);
    return whole.narrow(0, margin, numel);
  };
  Arrays arrays;
  arrays.master = inner(at::randn({numel}, generator, at::kFloat));
  arrays.gradient = at::randn({numel}, generator, at::kFloat).to(gradient);
  if (copy != at::ScalarType::Undefined) arrays.low_precision = inner(at::zeros({numel}, copy));
  for (int i = 0; i < num_states(rule); ++i) {
    arrays.states.push_back(inner(at::rand({numel}, generator, at::kFloat)));
  }
  return arrays;
}

inline void run(const UpdateRule& rule, const Arrays& a) {
  switch (a.states.size()) {
    case 0:
      return update({a.master, a.gradient, a.low_precision, {}, a.gradient_scale}, rule);
    case 1:
      return update({a.master, a.gradient, a.low_precision, {{"s0", a.states[0]}}, a.gradient_scale}, rule);
    case 2:
      return update({a.master,
                     a.gradient,
                     a.low_precision,
                     {{"s0", a.states[0]}, {"s1", a.states[1]}},
                     a.gradient_scale},
                    rule);
    default:
      return update({a.master,
                     a.gradient,
                     a.low_precision,
                     {{"s0", a.states[0]}, {"s1", a.states[1]}, {"s2", a.states[2]}},
                     a.gradient_scale},
                    rule);
  }
}

inline void expect_same_bits(const Arrays& a, const Arrays& b, const std::string& what) {
  EXPECT_TRUE(at::equal(a.master, b.master)) << what;
  for (size_t i = 0; i < a.states.size(); ++i) EXPECT_TRUE(at::equal(a.states[i], b.states[i])) << what << i;
  if (a.low_precision.defined()) {
    EXPECT_TRUE(at::equal(a.low_precision, b.low_precision)) << what;
  }
}

}  // namespace deepspeed::kernels
