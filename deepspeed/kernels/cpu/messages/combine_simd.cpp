// Combines several arrays into one.
//
// Floating types are read in vectors, all terms of a position in turn, and stored once. Each position is read
// before it is written, so the result may replace a term. 16-bit types stay in fp32 from the first term to
// the rounding. Integers are processed tile by tile in loops that the compiler vectorises. Results that are
// not read again soon bypass the caches if they are aligned to whole vectors. A store into the caches would
// first read the line from memory.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "deepspeed/kernels/cpu/messages/message_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/messages/combine_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "deepspeed/kernels/cpu/half_precision-inl.h"
#include "deepspeed/kernels/cpu/vector_pair-inl.h"

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

struct SumOf {
  template <class V>
  static HWY_INLINE V vectors(V a, V b) {
    return hn::Add(a, b);
  }
  template <class T>
  static T numbers(T a, T b) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
};

struct ProductOf {
  template <class V>
  static HWY_INLINE V vectors(V a, V b) {
    return hn::Mul(a, b);
  }
  template <class T>
  static T numbers(T a, T b) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};

// A NaN in either argument is the result; some machines' instructions lose one of them.
template <class V>
HWY_INLINE V keep_nan(V a, V b, V result) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, result));
}

struct SmallestOf {
  template <class V>
  static HWY_INLINE V vectors(V a, V b) {
    return keep_nan(a, b, hn::Min(a, b));
  }
  template <class T>
  static T numbers(T a, T b) {
    return std::min(a, b);
  }
};

struct LargestOf {
  template <class V>
  static HWY_INLINE V vectors(V a, V b) {
    return keep_nan(a, b, hn::Max(a, b));
  }
  template <class T>
  static T numbers(T a, T b) {
    return std::max(a, b);
  }
};

struct AndOf {
  template <class T>
  static T numbers(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct OrOf {
  template <class T>
  static T numbers(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct XorOf {
  template <class T>
  static T numbers(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

/// Holds the terms of one call.
struct TermArrays {
  const void* const* terms;
  int64_t num_terms;
  bool stream;    // stores bypass the caches
  double factor;  // for a scaled sum

  template <class Bits>
  HWY_INLINE const Bits* at(int64_t term, int64_t index) const {
    return static_cast<const Bits*>(terms[term]) + index;
  }
};

/// Says what happens to a result before it is stored.
enum class Ending { kNone, kAverage, kScale };

template <Ending kEnding, class D>
HWY_INLINE hn::Vec<D> ended(D d, hn::Vec<D> result, const TermArrays& arrays) {
  if constexpr (kEnding == Ending::kAverage) {
    return hn::Div(result, hn::Set(d, static_cast<hn::TFromD<D>>(arrays.num_terms)));
  } else if constexpr (kEnding == Ending::kScale) {
    return hn::Mul(result, hn::Set(d, static_cast<hn::TFromD<D>>(arrays.factor)));
  } else {
    return result;
  }
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, bool stream, hn::TFromD<D>* to) {
  if (stream) {
    hn::Stream(value, d, to);
  } else {
    hn::StoreU(value, d, to);
  }
}

template <class D>
HWY_INLINE void store_as(D d, Float32, hn::Vec<D> value, bool stream, float* to) {
  store(d, value, stream, to);
}
template <class D>
HWY_INLINE void store_as(D d, Float64, hn::Vec<D> value, bool stream, double* to) {
  store(d, value, stream, to);
}
// A vector of results fills only half a vector in 16 bits. Such a store never bypasses the caches.
template <class D, class Type>
HWY_INLINE void store_as(D d, Type type, hn::Vec<D> value, bool, uint16_t* to) {
  hn::StoreU(round_to(d, type, value), hn::Rebind<uint16_t, D>(), to);
}

/// Combines the terms' vectors at `index` and stores the result.
template <class Type, class Op, Ending kEnding, class D>
HWY_INLINE void combine_vector(D d, typename Type::Bits* to, const TermArrays& arrays, int64_t index) {
  using Bits = typename Type::Bits;
  auto result = load(d, Type(), arrays.at<Bits>(0, index));
  for (int64_t term = 1; term < arrays.num_terms; ++term) {
    result = Op::vectors(result, load(d, Type(), arrays.at<Bits>(term, index)));
  }
  store_as(d, Type(), ended<kEnding>(d, result, arrays), arrays.stream, to + index);
}

/// Combines four adjacent vectors of each term at once. Additions at one position wait for each other, but
/// not for those of other vectors.
template <class Type, class Op, Ending kEnding, class D>
HWY_INLINE void combine_four_vectors(D d, typename Type::Bits* to, const TermArrays& arrays, int64_t index) {
  using Bits = typename Type::Bits;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> a, b, c, e;
  const auto load_term = [&](int64_t term, hn::Vec<D>& v0, hn::Vec<D>& v1, hn::Vec<D>& v2, hn::Vec<D>& v3)
                             HWY_ATTR {
                               const Bits* from = arrays.at<Bits>(term, index);
#if HWY_TARGET != HWY_SCALAR
                               if constexpr (sizeof(Bits) == 2) {
                                 load_pair(d, Type(), from, v0, v1);
                                 load_pair(d, Type(), from + 2 * lanes, v2, v3);
                                 return;
                               }
#endif
                               v0 = load(d, Type(), from);
                               v1 = load(d, Type(), from + lanes);
                               v2 = load(d, Type(), from + 2 * lanes);
                               v3 = load(d, Type(), from + 3 * lanes);
                             };
  load_term(0, a, b, c, e);
  for (int64_t term = 1; term < arrays.num_terms; ++term) {
    hn::Vec<D> v0, v1, v2, v3;
    load_term(term, v0, v1, v2, v3);
    a = Op::vectors(a, v0);
    b = Op::vectors(b, v1);
    c = Op::vectors(c, v2);
    e = Op::vectors(e, v3);
  }
  a = ended<kEnding>(d, a, arrays);
  b = ended<kEnding>(d, b, arrays);
  c = ended<kEnding>(d, c, arrays);
  e = ended<kEnding>(d, e, arrays);
  to += index;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(Bits) == 2) {
    const PairOf<D> d16;
    store(d16, round_pair(d, Type(), a, b), arrays.stream, to);
    store(d16, round_pair(d, Type(), c, e), arrays.stream, to + 2 * lanes);
    return;
  }
#endif
  store_as(d, Type(), a, arrays.stream, to);
  store_as(d, Type(), b, arrays.stream, to + lanes);
  store_as(d, Type(), c, arrays.stream, to + 2 * lanes);
  store_as(d, Type(), e, arrays.stream, to + 3 * lanes);
}

template <class Type, class Op, Ending kEnding>
HWY_NOINLINE void combine_floats(typename Type::Bits* to, const TermArrays& arrays, int64_t numel) {
  using Bits = typename Type::Bits;
  const hn::ScalableTag<std::conditional_t<std::is_same_v<Type, Float64>, double, float>> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 4 * lanes <= numel; i += 4 * lanes) {
    combine_four_vectors<Type, Op, kEnding>(d, to, arrays, i);
  }
  for (; i + lanes <= numel; i += lanes) combine_vector<Type, Op, kEnding>(d, to, arrays, i);
  if (i == numel) return;
  // The rest uses a vector padded with zeros.
  constexpr size_t kMost = hn::MaxLanes(hn::ScalableTag<float>());
  const auto rest = static_cast<size_t>(numel - i) * sizeof(Bits);
  auto result = hn::Zero(d);
  for (int64_t term = 0; term < arrays.num_terms; ++term) {
    Bits values[kMost] = {};
    std::memcpy(values, arrays.at<Bits>(term, i), rest);
    const auto next = load(d, Type(), values);
    result = term == 0 ? next : Op::vectors(result, next);
  }
  Bits values[kMost];
  store_as(d, Type(), ended<kEnding>(d, result, arrays), false, values);
  std::memcpy(to + i, values, rest);
}

template <class T, class Op>
HWY_NOINLINE void combine_integers(T* to, const TermArrays& arrays, int64_t numel) {
  constexpr int64_t kTile = 4096 / sizeof(T);
  T tile[kTile];
  for (int64_t begin = 0; begin < numel; begin += kTile) {
    const int64_t length = std::min(kTile, numel - begin);
    std::memcpy(tile, arrays.at<T>(0, begin), static_cast<size_t>(length) * sizeof(T));
    for (int64_t term = 1; term < arrays.num_terms; ++term) {
      const T* HWY_RESTRICT from = arrays.at<T>(term, begin);
      for (int64_t i = 0; i < length; ++i) tile[i] = Op::template numbers<T>(tile[i], from[i]);
    }
    std::memcpy(to + begin, tile, static_cast<size_t>(length) * sizeof(T));
  }
}

template <class Type>
void combine_floats_of(CombineOp op, void* to, const TermArrays& arrays, int64_t numel) {
  auto* const bits = static_cast<typename Type::Bits*>(to);
  if (op == CombineOp::kSum && arrays.factor != 1.0)
    return combine_floats<Type, SumOf, Ending::kScale>(bits, arrays, numel);
  if (op == CombineOp::kSum) return combine_floats<Type, SumOf, Ending::kNone>(bits, arrays, numel);
  if (op == CombineOp::kAverage) return combine_floats<Type, SumOf, Ending::kAverage>(bits, arrays, numel);
  if (op == CombineOp::kProduct) return combine_floats<Type, ProductOf, Ending::kNone>(bits, arrays, numel);
  if (op == CombineOp::kMin) return combine_floats<Type, SmallestOf, Ending::kNone>(bits, arrays, numel);
  return combine_floats<Type, LargestOf, Ending::kNone>(bits, arrays, numel);
}

template <class T>
void combine_integers_of(CombineOp op, void* to, const TermArrays& arrays, int64_t numel) {
  auto* const numbers = static_cast<T*>(to);
  if (op == CombineOp::kSum) return combine_integers<T, SumOf>(numbers, arrays, numel);
  if (op == CombineOp::kProduct) return combine_integers<T, ProductOf>(numbers, arrays, numel);
  if (op == CombineOp::kMin) return combine_integers<T, SmallestOf>(numbers, arrays, numel);
  if (op == CombineOp::kMax) return combine_integers<T, LargestOf>(numbers, arrays, numel);
  if (op == CombineOp::kAnd) return combine_integers<T, AndOf>(numbers, arrays, numel);
  if (op == CombineOp::kOr) return combine_integers<T, OrOf>(numbers, arrays, numel);
  return combine_integers<T, XorOf>(numbers, arrays, numel);
}

void dispatch_type(CombineOp op, CombineType type, void* to, const TermArrays& arrays, int64_t numel) {
  switch (type) {
    case CombineType::kFloat32:
      return combine_floats_of<Float32>(op, to, arrays, numel);
    case CombineType::kFloat64:
      return combine_floats_of<Float64>(op, to, arrays, numel);
    case CombineType::kFloat16:
      return combine_floats_of<Float16>(op, to, arrays, numel);
    case CombineType::kBFloat16:
      return combine_floats_of<BFloat16>(op, to, arrays, numel);
    case CombineType::kInt8:
      return combine_integers_of<int8_t>(op, to, arrays, numel);
    case CombineType::kUint8:
      return combine_integers_of<uint8_t>(op, to, arrays, numel);
    case CombineType::kInt16:
      return combine_integers_of<int16_t>(op, to, arrays, numel);
    case CombineType::kInt32:
      return combine_integers_of<int32_t>(op, to, arrays, numel);
    case CombineType::kInt64:
      return combine_integers_of<int64_t>(op, to, arrays, numel);
  }
}

void combine_of_target(CombineOp op, CombineType type, void* to, const void* const* terms, int64_t num_terms,
                       int64_t numel, bool stream, double factor) {
  const size_t vector_bytes = hn::Lanes(hn::ScalableTag<uint8_t>());
  const bool can_stream = stream && reinterpret_cast<uintptr_t>(to) % vector_bytes == 0;
  dispatch_type(op, type, to, {terms, num_terms, can_stream, factor}, numel);
  if (can_stream) hwy::FlushStream();
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepspeed::kernels {

HWY_EXPORT(combine_of_target);

void combine_simd(CombineOp op, CombineType type, void* to, const void* const* terms, int64_t num_terms,
                  int64_t numel, bool stream, double factor) {
  HWY_DYNAMIC_DISPATCH(combine_of_target)(op, type, to, terms, num_terms, numel, stream, factor);
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
