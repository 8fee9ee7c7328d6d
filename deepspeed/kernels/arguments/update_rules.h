// The CPU and CUDA kernels get, as plain data, the update rules of optimizers that need no more than one pass
// over flat arrays. Constants are derived in double and rounded to the master's type once. With p the master,
// g the stored gradient, s0, s1, s2 the arrays beside it in the master's type, every operation rounds on its
// own, in the order that is written here. (Adam has kernels of its own, but for double.)
#pragma once

#include <cstdint>
#include <variant>

#include "deepspeed/kernels/arguments/element_type.h"

namespace deepspeed::kernels {

/// Points to arrays of `numel` elements; those that a rule does not use, and `low_precision`, may be null.
/// Nothing overlaps. Master and states are fp32; where the gradient is fp64 they are too, without a copy.
struct UpdateArrays {
  int64_t numel = 0;
  void* master = nullptr;
  const void* gradient = nullptr;
  void* states[3] = {nullptr, nullptr, nullptr};
  void* low_precision = nullptr;  // copy of the new master
  ElementType gradient_type = ElementType::kFloat32;
  ElementType low_precision_type = ElementType::kBFloat16;  // fp16 or bf16
  const double* gradient_scale = nullptr;  // null, or on CUDA one that takes the place of the rule's
};

/// Steps SGD: g = gradient_scale * g + l2_decay * p;  p -= lr * g
struct SgdRule {
  static constexpr int kNumStates = 0;
  double gradient_scale = 1;
  double l2_decay = 0;
  double lr = 0;
};

/// Steps SGD with momentum: g = gradient_scale * g + l2_decay * p;  s0 = momentum * s0 + fresh * g;
/// p -= lr * (direct * g + look_ahead * s0)
struct MomentumSgdRule {
  static constexpr int kNumStates = 1;
  double gradient_scale = 1;
  double l2_decay = 0;
  double lr = 0;
  double momentum = 0;
  double fresh = 1;       // 1 - dampening; 1 at the first step
  double direct = 0;      // 1 with nesterov
  double look_ahead = 1;  // the momentum with nesterov
};

/// Steps Lion: g = gradient_scale * g;  c = beta1 * s0 + (1 - beta1) * g;  p = p - decay * p - lr * sign(c);
/// s0 = beta2 * s0 + (1 - beta2) * g.  sign(0) = 0
struct LionRule {
  static constexpr int kNumStates = 1;
  double gradient_scale = 1;
  double beta1 = 0;
  double one_minus_beta1 = 0;
  double beta2 = 0;
  double one_minus_beta2 = 0;
  double lr = 0;
  double decay = 0;  // lr * weight_decay
};

/// Steps Adagrad: g = gradient_scale * g;  d = g + l2_decay * p;  s0 += d * d;
/// p -= lr * (g + numerator_decay * p) / (sqrt(s0) + eps)
struct AdagradRule {
  static constexpr int kNumStates = 1;
  double gradient_scale = 1;
  double l2_decay = 0;
  double numerator_decay = 0;
  double lr = 0;
  double eps = 0;
};

/// Holds the numbers that both rules of Adam have; each says what bias corrections `eps` and `step_size`
/// include.
struct AdamNumbers {
  double gradient_scale = 1;
  double l2_decay = 0;
  double beta1 = 0;
  double one_minus_beta1 = 0;
  double beta2 = 0;
  double one_minus_beta2 = 0;
  double eps = 0;
  double decoupled_decay = 0;  // lr * weight_decay
  double step_size = 0;
};

/// Steps Adam, for masters in double alone: g = gradient_scale * g + l2_decay * p;
/// s0 = beta1 * s0 + (1 - beta1) * g;  s1 = beta2 * s1 + (1 - beta2) * g * g;
/// p -= decoupled_decay * p + step_size * s0 / (sqrt(s1) + eps). eps and step_size come times the root of the
/// second bias correction.
struct AdamRule : AdamNumbers {
  static constexpr int kNumStates = 2;
};

/// Steps Adam with amsgrad: g = gradient_scale * g + l2_decay * p;  s0 = beta1 * s0 + (1 - beta1) * g;
/// s1 = beta2 * s1 + (1 - beta2) * g * g;  s2 = max(s2, s1);
/// p -= decoupled_decay * p + step_size * s0 / (sqrt(s2) * inverse_sqrt_bias2 + eps)
struct AmsgradRule : AdamNumbers {
  static constexpr int kNumStates = 3;
  double inverse_sqrt_bias2 = 1;
};

/// Makes the first half of Lamb; p stays. g = gradient_scale * g;  s0 and s1 as Adam's moments;
/// s2 = s0 / (sqrt(s1 + eps_inside) + eps_outside) + weight_decay * p
struct LambUpdateRule {
  static constexpr int kNumStates = 3;
  double gradient_scale = 1;
  double beta1 = 0;
  double one_minus_beta1 = 0;
  double beta2 = 0;
  double one_minus_beta2 = 0;
  double eps_inside = 0;
  double eps_outside = 0;
  double weight_decay = 0;
};

/// Makes the first part of Muon; p stays. g = gradient_scale * g;  s0 += (1 - momentum) * (g - s0);
/// s1 = g + momentum * (s0 - g)
struct MuonMomentumRule {
  static constexpr int kNumStates = 2;
  double gradient_scale = 1;
  double momentum = 0;
  double one_minus_momentum = 1;
};

using UpdateRule = std::variant<SgdRule, MomentumSgdRule, LionRule, AdagradRule, AmsgradRule, LambUpdateRule,
                                MuonMomentumRule, AdamRule>;

/// Says whether the rule writes the master (and its copy).
template <class Rule>
inline constexpr bool kWritesMaster = true;
template <>
inline constexpr bool kWritesMaster<LambUpdateRule> = false;
template <>
inline constexpr bool kWritesMaster<MuonMomentumRule> = false;

/// Says whether the rule has a kernel for masters of fp32.
template <class Rule>
inline constexpr bool kTakesFloat = true;
template <>
inline constexpr bool kTakesFloat<AdamRule> = false;

}  // namespace deepspeed::kernels
