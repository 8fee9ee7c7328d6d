// Applies the rules of update_rules.h. Each thread loops over the grid and takes one element at a time.
//
// Each operation rounds on its own (__fmul_rn and __fadd_rn are never contracted), in the order of the CPU
// kernels, so that both devices give the same bits. A launch picks the kernel by the rule and by the types of
// gradient and copy.
#include <cstdint>

#include "deepspeed/kernels/cuda/half_precision.cuh"
#include "deepspeed/kernels/cuda/launch.cuh"
#include "deepspeed/kernels/cuda/launches.h"

namespace deepspeed::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 4096;

struct NoCopy {};

__device__ inline float add(float a, float b) { return __fadd_rn(a, b); }
__device__ inline float subtract(float a, float b) { return __fsub_rn(a, b); }
__device__ inline float multiply(float a, float b) { return __fmul_rn(a, b); }
__device__ inline float divide(float a, float b) { return __fdiv_rn(a, b); }
__device__ inline float root(float a) { return __fsqrt_rn(a); }
__device__ inline double add(double a, double b) { return __dadd_rn(a, b); }
__device__ inline double subtract(double a, double b) { return __dsub_rn(a, b); }
__device__ inline double multiply(double a, double b) { return __dmul_rn(a, b); }
__device__ inline double divide(double a, double b) { return __ddiv_rn(a, b); }
__device__ inline double root(double a) { return __dsqrt_rn(a); }

/// Multiplies a value by a constant.
template <class T>
__device__ inline T times(double constant, T value) {
  return multiply(static_cast<T>(constant), value);
}

// g is already scaled; p and the states s are updated in place.
template <class T>
__device__ inline void apply(const SgdRule& c, T g, T& p, T*) {
  p = subtract(p, times(c.lr, add(g, times(c.l2_decay, p))));
}

template <class T>
__device__ inline void apply(const MomentumSgdRule& c, T g, T& p, T* s) {
  g = add(g, times(c.l2_decay, p));
  s[0] = add(times(c.momentum, s[0]), times(c.fresh, g));
  p = subtract(p, times(c.lr, add(times(c.direct, g), times(c.look_ahead, s[0]))));
}

template <class T>
__device__ inline void apply(const LionRule& c, T g, T& p, T* s) {
  const T interpolated = add(times(c.beta1, s[0]), times(c.one_minus_beta1, g));
  const T kept = subtract(p, times(c.decay, p));
  const T moved = subtract(kept, copysign(static_cast<T>(c.lr), interpolated));
  p = interpolated == T(0) ? kept : isnan(interpolated) ? interpolated : moved;
  s[0] = add(times(c.beta2, s[0]), times(c.one_minus_beta2, g));
}

template <class T>
__device__ inline void apply(const AdagradRule& c, T g, T& p, T* s) {
  const T decayed = add(g, times(c.l2_decay, p));
  s[0] = add(s[0], multiply(decayed, decayed));
  const T numerator = times(c.lr, add(g, times(c.numerator_decay, p)));
  p = subtract(p, divide(numerator, add(root(s[0]), static_cast<T>(c.eps))));
}

/// Updates Adam's moments in s[0] and s[1].
template <class Rule, class T>
__device__ inline void average(const Rule& c, T g, T* s) {
  s[0] = add(times(c.beta1, s[0]), times(c.one_minus_beta1, g));
  s[1] = add(times(c.beta2, s[1]), multiply(times(c.one_minus_beta2, g), g));
}

template <class T>
__device__ inline void apply(const AdamRule& c, T g, T& p, T* s) {
  average(c, add(g, times(c.l2_decay, p)), s);
  const T change = divide(times(c.step_size, s[0]), add(root(s[1]), static_cast<T>(c.eps)));
  p = subtract(p, add(times(c.decoupled_decay, p), change));
}

template <class T>
__device__ inline void apply(const AmsgradRule& c, T g, T& p, T* s) {
  average(c, add(g, times(c.l2_decay, p)), s);
  s[2] = s[2] > s[1] ? s[2] : s[1];
  const T denominator = add(times(c.inverse_sqrt_bias2, root(s[2])), static_cast<T>(c.eps));
  const T change = divide(times(c.step_size, s[0]), denominator);
  p = subtract(p, add(times(c.decoupled_decay, p), change));
}

template <class T>
__device__ inline void apply(const LambUpdateRule& c, T g, T& p, T* s) {
  average(c, g, s);
  const T within = root(add(s[1], static_cast<T>(c.eps_inside)));
  s[2] = add(divide(s[0], add(within, static_cast<T>(c.eps_outside))), times(c.weight_decay, p));
}

template <class T>
__device__ inline void apply(const MuonMomentumRule& c, T g, T&, T* s) {
  s[0] = add(s[0], times(c.one_minus_momentum, subtract(g, s[0])));
  s[1] = add(g, times(c.momentum, subtract(s[0], g)));
}

/// Names the type that the rule computes in.
template <class Gradient>
using ValueOf = decltype(to_float(Gradient()));

template <class Gradient, class Copy, class Rule>
__global__ void __launch_bounds__(kThreads) update_kernel(UpdateArrays arrays, Rule rule) {
  using T = ValueOf<Gradient>;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;
  const Gradient* const gradient = static_cast<const Gradient*>(arrays.gradient);
  T* const master = static_cast<T*>(arrays.master);
  const double scale = arrays.gradient_scale == nullptr ? rule.gradient_scale : *arrays.gradient_scale;
  if (arrays.gradient_scale != nullptr && isnan(scale)) return;  // skips the step
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < arrays.numel;
       i += threads) {
    T p = master[i];
    T s[3] = {};
#pragma unroll
    for (int k = 0; k < Rule::kNumStates; ++k) s[k] = static_cast<const T*>(arrays.states[k])[i];
    apply(rule, times(scale, to_float(gradient[i])), p, s);
#pragma unroll
    for (int k = 0; k < Rule::kNumStates; ++k) static_cast<T*>(arrays.states[k])[i] = s[k];
    if constexpr (kWritesMaster<Rule>) {
      master[i] = p;
      if constexpr (sizeof(Copy) == 2) {
        round_to(p, static_cast<Copy*>(arrays.low_precision)[i]);
      }
    }
  }
}

template <class Gradient, class Copy, class Rule>
cudaError_t launch(const UpdateArrays& arrays, const Rule& rule, cudaStream_t stream) {
  const int64_t wanted = (arrays.numel + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
  return launch_kernel(&update_kernel<Gradient, Copy, Rule>, {blocks, kThreads, stream}, arrays, rule);
}

template <class Gradient, class Rule>
cudaError_t dispatch_copy(const UpdateArrays& arrays, const Rule& rule, cudaStream_t stream) {
  if constexpr (kWritesMaster<Rule>) {
    if (arrays.low_precision != nullptr) {
      return arrays.low_precision_type == ElementType::kFloat16
                 ? launch<Gradient, __half>(arrays, rule, stream)
                 : launch<Gradient, __nv_bfloat16>(arrays, rule, stream);
    }
  }
  return launch<Gradient, NoCopy>(arrays, rule, stream);
}

template <class Rule>
cudaError_t dispatch_gradient(const UpdateArrays& arrays, const Rule& rule, cudaStream_t stream) {
  if (arrays.gradient_type == ElementType::kFloat64) return launch<double, NoCopy>(arrays, rule, stream);
  if constexpr (kTakesFloat<Rule>) {
    switch (arrays.gradient_type) {
      case ElementType::kFloat16:
        return dispatch_copy<__half>(arrays, rule, stream);
      case ElementType::kBFloat16:
        return dispatch_copy<__nv_bfloat16>(arrays, rule, stream);
      default:
        return dispatch_copy<float>(arrays, rule, stream);
    }
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch_update(const UpdateArrays& arrays, const UpdateRule& rule, cudaStream_t stream) {
  return std::visit([&](const auto& r) { return dispatch_gradient(arrays, r, stream); }, rule);
}

}  // namespace deepspeed::kernels
