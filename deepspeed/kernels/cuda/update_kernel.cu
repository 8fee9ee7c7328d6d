// The rules of update_rules.h, one element a thread at a time, in a loop over the grid. Every operation
// rounds on its own
// (__fmul_rn, __fadd_rn are never contracted), in the order of the CPU kernels.
#include <cstdint>

#include "deepspeed/kernels/cuda/half_precision.cuh"
#include "deepspeed/kernels/cuda/update_kernel.h"

namespace deepspeed::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 4096;

struct NoCopy {};

__device__ inline float add(float a, float b) { return __fadd_rn(a, b); }
__device__ inline float subtract(float a, float b) { return __fsub_rn(a, b); }
__device__ inline float times(float a, float b) { return __fmul_rn(a, b); }

// g comes scaled; p and the states s are updated in place.
__device__ inline void apply(const SgdRule& c, float g, float& p, float*) {
  p = subtract(p, times(c.lr, add(g, times(c.l2_decay, p))));
}

__device__ inline void apply(const MomentumSgdRule& c, float g, float& p, float* s) {
  g = add(g, times(c.l2_decay, p));
  s[0] = add(times(c.momentum, s[0]), times(c.fresh, g));
  p = subtract(p, times(c.lr, add(times(c.direct, g), times(c.look_ahead, s[0]))));
}

__device__ inline void apply(const LionRule& c, float g, float& p, float* s) {
  const float interpolated = add(times(c.beta1, s[0]), times(c.one_minus_beta1, g));
  const float kept = subtract(p, times(c.decay, p));
  const float moved = subtract(kept, copysignf(c.lr, interpolated));
  p = interpolated == 0.0F ? kept : isnan(interpolated) ? interpolated : moved;
  s[0] = add(times(c.beta2, s[0]), times(c.one_minus_beta2, g));
}

__device__ inline void apply(const AdagradRule& c, float g, float& p, float* s) {
  const float decayed = add(g, times(c.l2_decay, p));
  s[0] = add(s[0], times(decayed, decayed));
  const float numerator = times(c.lr, add(g, times(c.numerator_decay, p)));
  p = subtract(p, __fdiv_rn(numerator, add(__fsqrt_rn(s[0]), c.eps)));
}

/// Adam's moments in s[0] and s[1].
template <class Rule>
__device__ inline void average(const Rule& c, float g, float* s) {
  s[0] = add(times(c.beta1, s[0]), times(c.one_minus_beta1, g));
  s[1] = add(times(c.beta2, s[1]), times(times(c.one_minus_beta2, g), g));
}

__device__ inline void apply(const AmsgradRule& c, float g, float& p, float* s) {
  average(c, add(g, times(c.l2_decay, p)), s);
  s[2] = s[2] > s[1] ? s[2] : s[1];
  const float denominator = add(times(c.inverse_sqrt_bias2, __fsqrt_rn(s[2])), c.eps);
  const float change = __fdiv_rn(times(c.step_size, s[0]), denominator);
  p = subtract(p, add(times(c.decoupled_decay, p), change));
}

__device__ inline void apply(const LambUpdateRule& c, float g, float& p, float* s) {
  average(c, g, s);
  const float root = __fsqrt_rn(add(s[1], c.eps_inside));
  s[2] = add(__fdiv_rn(s[0], add(root, c.eps_outside)), times(c.weight_decay, p));
}

__device__ inline void apply(const MuonMomentumRule& c, float g, float&, float* s) {
  s[0] = add(s[0], times(c.one_minus_momentum, subtract(g, s[0])));
  s[1] = add(g, times(c.momentum, subtract(s[0], g)));
}

template <class Gradient, class Copy, class Rule>
__global__ void __launch_bounds__(kThreads) update_kernel(UpdateArrays arrays, Rule rule) {
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;
  const Gradient* const gradient = static_cast<const Gradient*>(arrays.gradient);
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < arrays.numel;
       i += threads) {
    float p = arrays.master[i];
    float s[3] = {};
#pragma unroll
    for (int k = 0; k < Rule::kNumStates; ++k) s[k] = arrays.states[k][i];
    apply(rule, times(rule.gradient_scale, to_float(gradient[i])), p, s);
#pragma unroll
    for (int k = 0; k < Rule::kNumStates; ++k) arrays.states[k][i] = s[k];
    if constexpr (kWritesMaster<Rule>) {
      arrays.master[i] = p;
      if constexpr (sizeof(Copy) == 2) {
        round_to(p, static_cast<Copy*>(arrays.low_precision)[i]);
      }
    }
  }
}

template <class Gradient, class Copy, class Rule>
cudaError_t launch(const UpdateArrays& arrays, const Rule& rule, cudaStream_t stream) {
  const int64_t wanted = (arrays.numel + kThreads - 1) / kThreads;
  const int blocks = static_cast<int>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
  update_kernel<Gradient, Copy, Rule><<<blocks, kThreads, 0, stream>>>(arrays, rule);
  return cudaGetLastError();
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

}  // namespace

cudaError_t launch_update(const UpdateArrays& arrays, const UpdateRule& rule, cudaStream_t stream) {
  return std::visit(
      [&](const auto& r) {
        switch (arrays.gradient_type) {
          case ElementType::kFloat16:
            return dispatch_copy<__half>(arrays, r, stream);
          case ElementType::kBFloat16:
            return dispatch_copy<__nv_bfloat16>(arrays, r, stream);
          default:
            return dispatch_copy<float>(arrays, r, stream);
        }
      },
      rule);
}

}  // namespace deepspeed::kernels
