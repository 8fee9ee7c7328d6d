// Applies the rules of update_rules.h to one vector of floats or doubles. g is already scaled; p and the
// states are updated in place. Each operation rounds on its own. Included once per instruction set.
#if defined(DEEPSPEED_KERNELS_CPU_UPDATE_RULES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPSPEED_KERNELS_CPU_UPDATE_RULES_INL_H_
#undef DEEPSPEED_KERNELS_CPU_UPDATE_RULES_INL_H_
#else
#define DEEPSPEED_KERNELS_CPU_UPDATE_RULES_INL_H_
#endif

#include "deepspeed/kernels/arguments/update_rules.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> all_of(D d, double constant) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(constant));
}

/// Multiplies a vector by a constant.
template <class D>
HWY_INLINE hn::Vec<D> times(D d, double constant, hn::Vec<D> value) {
  return hn::Mul(all_of(d, constant), value);
}

template <class D>
HWY_INLINE void apply(D d, const SgdRule& c, hn::Vec<D> g, hn::Vec<D>& p, hn::Vec<D>&, hn::Vec<D>&,
                      hn::Vec<D>&) {
  g = hn::Add(g, times(d, c.l2_decay, p));
  p = hn::Sub(p, times(d, c.lr, g));
}

template <class D>
HWY_INLINE void apply(D d, const MomentumSgdRule& c, hn::Vec<D> g, hn::Vec<D>& p, hn::Vec<D>& buffer,
                      hn::Vec<D>&, hn::Vec<D>&) {
  g = hn::Add(g, times(d, c.l2_decay, p));
  buffer = hn::Add(times(d, c.momentum, buffer), times(d, c.fresh, g));
  p = hn::Sub(p, times(d, c.lr, hn::Add(times(d, c.direct, g), times(d, c.look_ahead, buffer))));
}

template <class D>
HWY_INLINE void apply(D d, const LionRule& c, hn::Vec<D> g, hn::Vec<D>& p, hn::Vec<D>& m, hn::Vec<D>&,
                      hn::Vec<D>&) {
  const auto interpolated = hn::Add(times(d, c.beta1, m), times(d, c.one_minus_beta1, g));
  const auto kept = hn::Sub(p, times(d, c.decay, p));
  const auto moved = hn::Sub(kept, hn::CopySign(all_of(d, c.lr), interpolated));
  // nan gives no direction either, but it must show in the result
  p = hn::IfThenElse(hn::Eq(interpolated, hn::Zero(d)), kept,
                     hn::IfThenElse(hn::IsNaN(interpolated), interpolated, moved));
  m = hn::Add(times(d, c.beta2, m), times(d, c.one_minus_beta2, g));
}

template <class D>
HWY_INLINE void apply(D d, const AdagradRule& c, hn::Vec<D> g, hn::Vec<D>& p, hn::Vec<D>& sum, hn::Vec<D>&,
                      hn::Vec<D>&) {
  const auto decayed = hn::Add(g, times(d, c.l2_decay, p));
  sum = hn::Add(sum, hn::Mul(decayed, decayed));
  const auto numerator = times(d, c.lr, hn::Add(g, times(d, c.numerator_decay, p)));
  p = hn::Sub(p, hn::Div(numerator, hn::Add(hn::Sqrt(sum), all_of(d, c.eps))));
}

/// Updates Adam's moments, `m` and `v`, with the gradient `g`.
template <class Rule, class D>
HWY_INLINE void average(D d, const Rule& c, hn::Vec<D> g, hn::Vec<D>& m, hn::Vec<D>& v) {
  m = hn::Add(times(d, c.beta1, m), times(d, c.one_minus_beta1, g));
  v = hn::Add(times(d, c.beta2, v), hn::Mul(times(d, c.one_minus_beta2, g), g));
}

template <class D>
HWY_INLINE void apply(D d, const AdamRule& c, hn::Vec<D> g, hn::Vec<D>& p, hn::Vec<D>& m, hn::Vec<D>& v,
                      hn::Vec<D>&) {
  average(d, c, hn::Add(g, times(d, c.l2_decay, p)), m, v);
  const auto change = hn::Div(times(d, c.step_size, m), hn::Add(hn::Sqrt(v), all_of(d, c.eps)));
  p = hn::Sub(p, hn::Add(times(d, c.decoupled_decay, p), change));
}

template <class D>
HWY_INLINE void apply(D d, const AmsgradRule& c, hn::Vec<D> g, hn::Vec<D>& p, hn::Vec<D>& m, hn::Vec<D>& v,
                      hn::Vec<D>& largest) {
  average(d, c, hn::Add(g, times(d, c.l2_decay, p)), m, v);
  largest = hn::IfThenElse(hn::Gt(largest, v), largest, v);
  const auto denominator = hn::Add(times(d, c.inverse_sqrt_bias2, hn::Sqrt(largest)), all_of(d, c.eps));
  const auto change = hn::Div(times(d, c.step_size, m), denominator);
  p = hn::Sub(p, hn::Add(times(d, c.decoupled_decay, p), change));
}

template <class D>
HWY_INLINE void apply(D d, const LambUpdateRule& c, hn::Vec<D> g, hn::Vec<D>& p, hn::Vec<D>& m, hn::Vec<D>& v,
                      hn::Vec<D>& change) {
  average(d, c, g, m, v);
  const auto root = hn::Sqrt(hn::Add(v, all_of(d, c.eps_inside)));
  change = hn::Div(m, hn::Add(root, all_of(d, c.eps_outside)));
  change = hn::Add(change, times(d, c.weight_decay, p));
}

template <class D>
HWY_INLINE void apply(D d, const MuonMomentumRule& c, hn::Vec<D> g, hn::Vec<D>&, hn::Vec<D>& buffer,
                      hn::Vec<D>& change, hn::Vec<D>&) {
  buffer = hn::Add(buffer, times(d, c.one_minus_momentum, hn::Sub(g, buffer)));
  change = hn::Add(g, times(d, c.momentum, hn::Sub(buffer, g)));
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
