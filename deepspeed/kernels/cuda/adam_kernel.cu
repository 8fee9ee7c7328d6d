// One fused pass of Adam. Each thread loops over the grid and takes four elements of every array at a time.
//
// A thread loads a pack of each array, joins split masters, updates element by element, and stores packs. It
// takes single elements at the end of the arrays, and everywhere if a pointer is not aligned for packs.
// Operations round as in the CPU kernel and in its order (__fmul_rn and __fadd_rn are never contracted), so
// that both devices give equal bits. The launch picks the kernel by the types of gradient, moments, copy and
// masters.
#include <cstdint>

#include "deepspeed/kernels/arguments/rounding_hash.h"
#include "deepspeed/kernels/cuda/half_precision.cuh"
#include "deepspeed/kernels/cuda/launch.cuh"
#include "deepspeed/kernels/cuda/launches.h"

namespace deepspeed::kernels {
namespace {

constexpr int kWidth = 4;
constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 4096;

struct NoCopy {};

// These two types replace the copy's type if masters are not fp32 numbers with a separate copy.
/// Says that the copy is the upper half of split masters (split_master.h).
struct UpperHalf {
  uint16_t bits;
};
/// Marks 16-bit masters, which have no copy.
template <class T>
struct InPlace {};

/// Gives the element type of the masters' array for a type of copy. kReadsCopy: masters are split; the copy
/// (bf16) holds their upper 16 bits and the array their lower 16.
template <class Copy>
struct MasterOf {
  using Type = float;
  static constexpr bool kReadsCopy = false;
};
template <>
struct MasterOf<UpperHalf> {
  using Type = uint16_t;
  static constexpr bool kReadsCopy = true;
};
template <class T>
struct MasterOf<InPlace<T>> {
  using Type = T;
  static constexpr bool kReadsCopy = false;
};

template <class Copy>
__device__ inline float load_master(float master, const Copy&) {
  return master;
}
__device__ inline float load_master(uint16_t lower, const UpperHalf& upper) {
  const uint32_t weight = static_cast<uint32_t>(upper.bits) << 16;
  const uint32_t joined = weight + static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(lower)));
  // The sign differs only for a zero with a negative lower half, which no split produces.
  return __uint_as_float(((joined ^ weight) >> 31) != 0 ? weight : joined);
}

template <class T>
__device__ inline float load_master(T master, const InPlace<T>&) {
  return to_float(master);
}

__device__ inline void store_master(float value, float& master, NoCopy&) { master = value; }
template <class Copy>
__device__ inline void store_master(float value, float& master, Copy& copy) {
  master = value;
  round_to(value, copy);
}
template <class T>
__device__ inline void store_master(float value, T& master, InPlace<T>&) {
  round_to(value, master);
}
__device__ inline void store_master(float value, uint16_t& lower, UpperHalf& upper) {
  const uint32_t bits = isnan(value) ? 0x7fc00000U : __float_as_uint(value);
  upper.bits = static_cast<uint16_t>((bits + 0x8000U) >> 16);
  lower = static_cast<uint16_t>(bits & 0xffffU);
}

/// Returns the random bits of element `index`, as rounding_hash.h defines them. `seed` is a RoundingSeed's
/// `mixed`, `key` its `first`.
__device__ inline uint32_t random_bits(uint64_t seed, uint32_t key, int64_t index) {
  const uint64_t high = static_cast<uint64_t>(index) >> 32;
  if (high != 0) {
    uint64_t mixed = seed ^ high;
    mixed += 0x9e3779b97f4a7c15ULL;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
    mixed ^= mixed >> 31;
    key = static_cast<uint32_t>(mixed >> 32);
  }
  const uint32_t low = static_cast<uint32_t>(index);
  uint32_t x = (((low >> 3) << 2) | (low & 3U)) * kHashMultiplier1 + key;
  x = (x ^ (x >> 15)) * kHashMultiplier2;
  return (low & 4U) != 0 ? __funnelshift_r(x, x, 8) : x;
}

__device__ inline void store_moment(float value, uint32_t, float& to) { to = value; }
__device__ inline void store_moment(float value, uint32_t random, __nv_bfloat16& to) {
  to = __ushort_as_bfloat16(static_cast<unsigned short>((__float_as_uint(value) + random) >> 16));
}

struct RoundingSeed {
  uint64_t mixed;  // mix_bits(seed)
  uint32_t first;  // rounding_key(seed, 0)
};

/// Computes the new master and moments. With fp32 moments each operation rounds on its own.
template <class Moment>
__device__ inline void update_values(const AdamConstants& c, float g, float& p, float& m, float& v) {
  g = __fadd_rn(__fmul_rn(g, c.gradient_scale), __fmul_rn(c.l2_decay, p));
  m = __fadd_rn(__fmul_rn(m, c.beta1), __fmul_rn(c.one_minus_beta1, g));
  v = __fadd_rn(__fmul_rn(v, c.beta2), __fmul_rn(__fmul_rn(c.one_minus_beta2, g), g));
  const float change = __fdiv_rn(__fmul_rn(c.step_size, m), __fadd_rn(__fsqrt_rn(v), c.eps));
  p = __fsub_rn(p, __fadd_rn(__fmul_rn(c.decoupled_decay, p), change));
}

/// Computes the new master and bf16 moments. Multiplications and additions are fused, as on a CPU that can do
/// it.
template <>
__device__ inline void update_values<__nv_bfloat16>(const AdamConstants& c, float g, float& p, float& m,
                                                    float& v) {
  if (c.l2_decay != 0.0F) {
    g = __fmaf_rn(c.l2_decay, p, __fmul_rn(g, c.gradient_scale));
  }
  m = __fmaf_rn(m, c.beta1, __fmul_rn(c.to_exp_avg, g));
  const float root = __fmul_rn(c.to_root_of_square, g);
  v = __fmaf_rn(root, root, __fmul_rn(v, c.beta2));
  const float denominator = __fmaf_rn(__fsqrt_rn(v), c.inverse_step_size, c.eps_over_step_size);
  p = __fsub_rn(__fmaf_rn(-c.decoupled_decay, p, p), __fdiv_rn(m, denominator));
}

template <class Gradient, class Moment, class Copy>
__device__ inline void update(const AdamConstants& c, const RoundingSeed& seed, int64_t index,
                              typename MasterOf<Copy>::Type& master, Gradient g16, Moment& m_at, Moment& v_at,
                              Copy& copy) {
  float p = load_master(master, copy), m = to_float(m_at), v = to_float(v_at);
  update_values<Moment>(c, to_float(g16), p, m, v);
  const bool draws = sizeof(Moment) == 2 && !isnan(m);  // a carry would turn nan into a number
  const uint32_t random = draws ? random_bits(seed.mixed, seed.first, index) : 0U;
  store_moment(m, random & 0xffffU, m_at);
  store_moment(v, isnan(v) ? 0U : random >> 16, v_at);  // a GPU's nan has all lower bits set
  store_master(p, master, copy);
}

template <class Gradient, class Moment, class Copy>
__global__ void __launch_bounds__(kThreads)
    adam_kernel(int64_t numel, typename MasterOf<Copy>::Type* __restrict__ p, const Gradient* __restrict__ g,
                Moment* __restrict__ m, Moment* __restrict__ v, Copy* __restrict__ copy, AdamConstants c,
                RoundingSeed seed, const double* __restrict__ gradient_scale, bool aligned) {
  using Master = typename MasterOf<Copy>::Type;
  constexpr bool kReadsCopy = MasterOf<Copy>::kReadsCopy;
  if (gradient_scale != nullptr) {
    if (isnan(*gradient_scale)) return;  // skips the step
    set_gradient_scale(c, *gradient_scale);
  }
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t packs = aligned ? numel / kWidth : 0;
  for (int64_t i = thread; i < packs; i += threads) {
    auto p4 = reinterpret_cast<Pack<Master, kWidth>*>(p)[i];
    const auto g4 = reinterpret_cast<const Pack<Gradient, kWidth>*>(g)[i];
    auto m4 = reinterpret_cast<Pack<Moment, kWidth>*>(m)[i];
    auto v4 = reinterpret_cast<Pack<Moment, kWidth>*>(v)[i];
    Pack<Copy, kWidth> copy4;
    if constexpr (kReadsCopy) {
      copy4 = reinterpret_cast<const Pack<Copy, kWidth>*>(copy)[i];
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      update(c, seed, c.first_index + i * kWidth + k, p4.at[k], g4.at[k], m4.at[k], v4.at[k], copy4.at[k]);
    }
    reinterpret_cast<Pack<Master, kWidth>*>(p)[i] = p4;
    reinterpret_cast<Pack<Moment, kWidth>*>(m)[i] = m4;
    reinterpret_cast<Pack<Moment, kWidth>*>(v)[i] = v4;
    if constexpr (sizeof(Copy) == 2) {
      reinterpret_cast<Pack<Copy, kWidth>*>(copy)[i] = copy4;
    }
  }
  for (int64_t i = packs * kWidth + thread; i < numel; i += threads) {
    Copy rounded;
    if constexpr (kReadsCopy) {
      rounded = copy[i];
    }
    update(c, seed, c.first_index + i, p[i], g[i], m[i], v[i], rounded);
    if constexpr (sizeof(Copy) == 2) {
      copy[i] = rounded;
    }
  }
}

// Returns whether an array can be read in packs: its address must be a multiple of a pack's size.
bool is_aligned(const void* pointer, size_t element_bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % (element_bytes * kWidth) == 0;
}

template <class Gradient, class Moment, class Copy>
cudaError_t launch(const AdamArrays& a, const AdamConstants& c, cudaStream_t stream) {
  auto* const master = static_cast<typename MasterOf<Copy>::Type*>(a.master);
  const bool aligned = is_aligned(master, sizeof(*master)) && is_aligned(a.gradient, sizeof(Gradient)) &&
                       is_aligned(a.exp_avg, sizeof(Moment)) && is_aligned(a.exp_avg_sq, sizeof(Moment)) &&
                       is_aligned(a.low_precision, sizeof(Copy));
  const int64_t per_block = int64_t{kThreads} * (aligned ? kWidth : 1);
  const int64_t wanted = (a.numel + per_block - 1) / per_block;
  const auto blocks = static_cast<unsigned>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
  const RoundingSeed seed{mix_bits(c.rounding_seed), rounding_key(c.rounding_seed, 0)};
  return launch_kernel(&adam_kernel<Gradient, Moment, Copy>, {blocks, kThreads, stream}, a.numel, master,
                       static_cast<const Gradient*>(a.gradient), static_cast<Moment*>(a.exp_avg),
                       static_cast<Moment*>(a.exp_avg_sq), static_cast<Copy*>(a.low_precision), c, seed,
                       a.gradient_scale, aligned);
}

template <class Gradient, class Moment>
cudaError_t dispatch_copy(const AdamArrays& a, const AdamConstants& c, cudaStream_t stream) {
  switch (a.master_form) {
    case MasterForm::kLowerHalf:
      return launch<Gradient, Moment, UpperHalf>(a, c, stream);
    case MasterForm::kFloat16:
      return launch<Gradient, Moment, InPlace<__half>>(a, c, stream);
    case MasterForm::kBFloat16:
      return launch<Gradient, Moment, InPlace<__nv_bfloat16>>(a, c, stream);
    case MasterForm::kFloat32:
      break;
  }
  if (a.low_precision == nullptr) {
    return launch<Gradient, Moment, NoCopy>(a, c, stream);
  }
  return a.low_precision_type == ElementType::kFloat16
             ? launch<Gradient, Moment, __half>(a, c, stream)
             : launch<Gradient, Moment, __nv_bfloat16>(a, c, stream);
}

template <class Gradient>
cudaError_t dispatch_moment(const AdamArrays& a, const AdamConstants& c, cudaStream_t stream) {
  return a.moment_type == ElementType::kFloat32 ? dispatch_copy<Gradient, float>(a, c, stream)
                                                : dispatch_copy<Gradient, __nv_bfloat16>(a, c, stream);
}

}  // namespace

cudaError_t launch_adam(const AdamArrays& arrays, const AdamConstants& constants, cudaStream_t stream) {
  switch (arrays.gradient_type) {
    case ElementType::kFloat16:
      return dispatch_moment<__half>(arrays, constants, stream);
    case ElementType::kBFloat16:
      return dispatch_moment<__nv_bfloat16>(arrays, constants, stream);
    default:
      return dispatch_moment<float>(arrays, constants, stream);
  }
}

}  // namespace deepspeed::kernels
