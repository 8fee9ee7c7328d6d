#include "deepspeed/kernels/cpu/ops/op_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/ops/rotary_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "deepspeed/kernels/cpu/ops/op_vectors-inl.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

/// Points to a head at one position, and to the cosines and sines there.
template <class Type, class TableType>
struct RotaryHead {
  const BitsOf<Type>* input;
  BitsOf<Type>* output;
  const BitsOf<TableType>*cos, *sin;
};

/// Rotates a head. Its pairs consist of one element of [0, half) and one of [half, 2 half).
template <class Type, class TableType>
HWY_INLINE void turn_halves(Type type, TableType table, const RotaryHead<Type, TableType>& head, int64_t half,
                            bool backward) {
  const WideTag<Type> d;
  for_each_vector(d, half, [&](int64_t i, auto span) HWY_ATTR {
    const auto cos = load(d, table, head.cos + i, span);
    const auto stored = load(d, table, head.sin + i, span);
    const auto sin = backward ? hn::Neg(stored) : stored;
    const auto a = load(d, type, head.input + i, span), b = load(d, type, head.input + half + i, span);
    store(d, type, hn::Sub(hn::Mul(a, cos), hn::Mul(b, sin)), head.output + i, span);
    store(d, type, hn::Add(hn::Mul(b, cos), hn::Mul(a, sin)), head.output + half + i, span);
  });
}

/// Rotates a head whose pairs are the neighbours 2 i and 2 i + 1. `pairs` is scratch memory of 4 * `half`
/// elements for separating them.
template <class Type, class TableType>
HWY_INLINE void turn_neighbours(Type type, TableType table, const RotaryHead<Type, TableType>& head,
                                int64_t half, bool backward, Wide<Type>* HWY_RESTRICT pairs) {
  using T = Wide<Type>;
  const WideTag<Type> d;
  const WideType<Type> wide;
  T* const a = pairs;
  T* const b = pairs + half;
  T* const x = pairs + 2 * half;
  for_each_vector(d, 2 * half, [&](int64_t i, auto span) HWY_ATTR {
    store(d, wide, load(d, type, head.input + i, span), x + i, span);
  });
  for (int64_t i = 0; i < half; ++i) a[i] = x[2 * i], b[i] = x[2 * i + 1];
  for_each_vector(d, half, [&](int64_t i, auto span) HWY_ATTR {
    const auto cos = load(d, table, head.cos + i, span);
    const auto stored = load(d, table, head.sin + i, span);
    const auto sin = backward ? hn::Neg(stored) : stored;
    const auto first = load(d, wide, a + i, span), second = load(d, wide, b + i, span);
    store(d, wide, hn::Sub(hn::Mul(first, cos), hn::Mul(second, sin)), a + i, span);
    store(d, wide, hn::Add(hn::Mul(second, cos), hn::Mul(first, sin)), b + i, span);
  });
  for (int64_t i = 0; i < half; ++i) x[2 * i] = a[i], x[2 * i + 1] = b[i];
  for_each_vector(d, 2 * half, [&](int64_t i, auto span) HWY_ATTR {
    store(d, type, load(d, wide, x + i, span), head.output + i, span);
  });
}

template <class Type, class TableType>
void turn_heads(Type type, TableType table, const RotaryArrays& a, int64_t begin, int64_t end) {
  const int64_t half = a.rotary / 2;
  std::vector<Wide<Type>> pairs(a.neighbours ? static_cast<size_t>(4 * half) : 0);
  const auto offset = [](const int64_t* strides, int64_t batch, int64_t head, int64_t position) {
    return batch * strides[0] + head * strides[1] + position * strides[2];
  };
  for (int64_t r = begin; r < end; ++r) {
    const int64_t position = r % a.positions, head = r / a.positions % a.heads,
                  batch = r / a.positions / a.heads;
    const int64_t entry = batch * a.table_batch_stride + position * half;
    const RotaryHead<Type, TableType> turned{
        static_cast<const BitsOf<Type>*>(a.input) + offset(a.input_strides, batch, head, position),
        static_cast<BitsOf<Type>*>(a.output) + offset(a.output_strides, batch, head, position),
        static_cast<const BitsOf<TableType>*>(a.cos) + entry,
        static_cast<const BitsOf<TableType>*>(a.sin) + entry};
    if (a.neighbours) {
      turn_neighbours(type, table, turned, half, a.backward, pairs.data());
    } else {
      turn_halves(type, table, turned, half, a.backward);
    }
    const auto rest = static_cast<size_t>(a.dim - a.rotary);
    std::memcpy(turned.output + a.rotary, turned.input + a.rotary, rest * sizeof(BitsOf<Type>));
  }
}

void rotary_of_target(const RotaryArrays& arrays, int64_t begin, int64_t end) {
  with_type(arrays.type, [&](auto type) HWY_ATTR {
    if (arrays.table_type == arrays.type) {
      turn_heads(type, type, arrays, begin, end);
    } else {  // fp32 tables with a 16-bit type
      turn_heads(type, WideType<decltype(type)>(), arrays, begin, end);
    }
  });
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepspeed::kernels {

HWY_EXPORT(rotary_of_target);

void rotary_simd(const RotaryArrays& arrays, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(rotary_of_target)(arrays, begin, end);
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
