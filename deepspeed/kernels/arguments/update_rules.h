// Update rules of optimizers that need only one pass over flat arrays, as plain data for CPU and CUDA
// kernels. Constants are derived in double and rounded to the master's type once. p is the master, g the
// stored gradient, and s0, s1, s2 are states in the master's type. Every operation rounds separately, in the
// order written here. (Adam has its own kernels, except for double.)
#pragma once

#include <cstdint>
#include <variant>

#include "deepspeed/kernels/arguments/element_type.h"

namespace deepspeed::kernels {

/// Points to arrays of `numel` elements. Arrays that a rule does not use, and `low_precision`, may be null.
/// No arrays overlap. Master and states are fp32. With an fp64 gradient they are fp64, and there is no copy.
struct UpdateArrays {
  int64_t numel = 0;
  void* master = nullptr;
  const void* gradient = nullptr;
  void* states[3] = {nullptr, nullptr, nullptr};
  void* low_precision = nullptr;  // copy of the new master
  ElementType gradient_type = ElementType::kFloat32;
  ElementType low_precision_type = ElementType::kBFloat16;  // fp16 or bf16
  const double* gradient_scale = nullptr;  // null, or on CUDA a scale that replaces the rule's
};

/// Describes a step of SGD.
///   g = gradient_scale * g + l2_decay * p;  p -= lr * g
struct SgdRule {
  static constexpr int kNumStates = 0;
  double gradient_scale = 1;
  double l2_decay = 0;
  double lr = 0;
};

/// Describes a step of SGD with momentum.
///   g = gradient_scale * g + l2_decay * p;  s0 = momentum * s0 + fresh * g
///   p -= lr * (direct * g + look_ahead * s0)
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

/// Describes a step of Lion, with sign(0) = 0.
///   g = gradient_scale * g;  c = beta1 * s0 + (1 - beta1) * g
///   p = p - decay * p - lr * sign(c);  s0 = beta2 * s0 + (1 - beta2) * g
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

/// Describes a step of Adagrad.
///   g = gradient_scale * g;  d = g + l2_decay * p;  s0 += d * d
///   p -= lr * (g + numerator_decay * p) / (sqrt(s0) + eps)
struct AdagradRule {
  static constexpr int kNumStates = 1;
  double gradient_scale = 1;
  double l2_decay = 0;
  double numerator_decay = 0;
  double lr = 0;
  double eps = 0;
};

/// Holds the numbers common to Adam's rules. Each rule says which bias corrections `eps` and `step_size`
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

/// Describes a step of Adam, only for masters in double.
///   g = gradient_scale * g + l2_decay * p
///   s0 = beta1 * s0 + (1 - beta1) * g;  s1 = beta2 * s1 + (1 - beta2) * g * g
///   p -= decoupled_decay * p + step_size * s0 / (sqrt(s1) + eps)
/// eps and step_size include the root of the second bias correction, step_size also the first correction.
struct AdamRule : AdamNumbers {
  static constexpr int kNumStates = 2;
};

/// Describes a step of Adam with amsgrad.
///   g = gradient_scale * g + l2_decay * p
///   s0 = beta1 * s0 + (1 - beta1) * g;  s1 = beta2 * s1 + (1 - beta2) * g * g;  s2 = max(s2, s1)
///   p -= decoupled_decay * p + step_size * s0 / (sqrt(s2) * inverse_sqrt_bias2 + eps)
/// step_size includes the first bias correction, inverse_sqrt_bias2 holds the second one; eps includes none.
struct AmsgradRule : AdamNumbers {
  static constexpr int kNumStates = 3;
  double inverse_sqrt_bias2 = 1;
};

/// Describes the first half of a Lamb step, which leaves p unchanged.
///   g = gradient_scale * g;  s0 and s1 as Adam's moments
///   s2 = s0 / (sqrt(s1 + eps_inside) + eps_outside) + weight_decay * p
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

/// Describes the first half of a Muon step, which leaves p unchanged.
///   g = gradient_scale * g;  s0 += (1 - momentum) * (g - s0)
///   s1 = g + momentum * (s0 - g)
struct MuonMomentumRule {
  static constexpr int kNumStates = 2;
  double gradient_scale = 1;
  double momentum = 0;
  double one_minus_momentum = 1;
};

using UpdateRule = std::variant<SgdRule, MomentumSgdRule, LionRule, AdagradRule, AmsgradRule, LambUpdateRule,
                                MuonMomentumRule, AdamRule>;

/// Says whether the rule writes the master and its copy.
template <class Rule>
inline constexpr bool kWritesMaster = true;
template <>
inline constexpr bool kWritesMaster<LambUpdateRule> = false;
template <>
inline constexpr bool kWritesMaster<MuonMomentumRule> = false;

/// Says whether the rule has a kernel for fp32 masters.
template <class Rule>
inline constexpr bool kTakesFloat = true;
template <>
inline constexpr bool kTakesFloat<AdamRule> = false;

}  // namespace deepspeed::kernels
