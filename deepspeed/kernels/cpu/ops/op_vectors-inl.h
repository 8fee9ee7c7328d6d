// Loops over rows of any stored type, one vector at a time, and an exponential with torch's edge cases.
// Included once per instruction set.
#if defined(DEEPSPEED_KERNELS_CPU_OPS_OP_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPSPEED_KERNELS_CPU_OPS_OP_VECTORS_INL_H_
#undef DEEPSPEED_KERNELS_CPU_OPS_OP_VECTORS_INL_H_
#else
#define DEEPSPEED_KERNELS_CPU_OPS_OP_VECTORS_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "deepspeed/kernels/arguments/element_type.h"
#include "deepspeed/kernels/cpu/half_precision-inl.h"

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

/// Names the type of arithmetic and sums.
template <class Type>
using Wide = std::conditional_t<std::is_same_v<Type, Float64>, double, float>;
template <class Type>
using WideTag = hn::ScalableTag<Wide<Type>>;
/// Names the storage tag of Wide<Type>.
template <class Type>
using WideType = std::conditional_t<std::is_same_v<Type, Float64>, Float64, Float32>;
template <class Type>
using BitsOf = typename Type::Bits;

/// Full and Part say how many lanes are in the row: all or `count`.
struct Full {};
struct Part {
  size_t count;
};

template <class D, class Type>
HWY_INLINE hn::Vec<D> load(D d, Type type, const BitsOf<Type>* HWY_RESTRICT from, Full) {
  return load(d, type, from);
}

/// Loads a partial vector; lanes beyond the end are 0.
template <class D, class Type>
HWY_INLINE hn::Vec<D> load(D d, Type type, const BitsOf<Type>* HWY_RESTRICT from, Part part) {
  BitsOf<Type> padded[hn::MaxLanes(D())] = {};
  std::memcpy(padded, from, part.count * sizeof(*padded));
  return load(d, type, padded);
}

template <class D, class Type>
HWY_INLINE void store(D d, Type type, hn::Vec<D> value, BitsOf<Type>* HWY_RESTRICT to, Full) {
  if constexpr (sizeof(BitsOf<Type>) == 2) {
    hn::StoreU(round_to(d, type, value), hn::Rebind<uint16_t, D>(), to);
  } else {
    hn::StoreU(value, d, to);
  }
}

template <class D, class Type>
HWY_INLINE void store(D d, Type type, hn::Vec<D> value, BitsOf<Type>* HWY_RESTRICT to, Part part) {
  BitsOf<Type> padded[hn::MaxLanes(D())];
  store(d, type, value, padded, Full());
  std::memcpy(to, padded, part.count * sizeof(*padded));
}

/// Calls body(i, Full or Part) for the vectors of [0, count). i is the first element.
template <class D, class Body>
HWY_INLINE void for_each_vector(D d, int64_t count, const Body& body) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, Full());
  if (i < count) body(i, Part{static_cast<size_t>(count - i)});
}

/// Returns `value` with the lanes beyond the end set to `rest`.
template <class D>
HWY_INLINE hn::Vec<D> with_rest(D, hn::Vec<D> value, Full, hn::Vec<D>) {
  return value;
}
template <class D>
HWY_INLINE hn::Vec<D> with_rest(D d, hn::Vec<D> value, Part part, hn::Vec<D> rest) {
  return hn::IfThenElse(hn::FirstN(d, part.count), value, rest);
}

/// Returns the sum of term(i, Full or Part) over the vectors of [0, count). It uses four running sums, since
/// additions to one would wait for each other.
template <class D, class Term>
HWY_INLINE hn::TFromD<D> sum_of(D d, int64_t count, const Term& term) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    sum0 = hn::Add(sum0, term(i, Full()));
    sum1 = hn::Add(sum1, term(i + lanes, Full()));
    sum2 = hn::Add(sum2, term(i + 2 * lanes, Full()));
    sum3 = hn::Add(sum3, term(i + 3 * lanes, Full()));
  }
  for (; i + lanes <= count; i += lanes) sum0 = hn::Add(sum0, term(i, Full()));
  if (i < count) {
    const Part part{static_cast<size_t>(count - i)};
    sum1 = hn::Add(sum1, with_rest(d, term(i, part), part, hn::Zero(d)));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

/// Returns e^x with the edge cases of std::exp. Highway's own returns 0 for nan and does not support x above
/// 104 (1000 in double).
template <class D>
HWY_INLINE hn::Vec<D> exp(D d, hn::Vec<D> x) {
  const auto limit = hn::Set(d, sizeof(hn::TFromD<D>) == 4 ? 104 : 1000);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, hn::Min(x, limit)));
}

/// Returns 1 / (1 + e^-x).
template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1);
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

/// Returns `count` parameters, converted to Wide<Type> once for use with many rows. null gives an empty
/// vector.
template <class Type>
std::vector<Wide<Type>> widened(const void* values, ElementType type, int64_t count) {
  const WideTag<Type> d;
  if (values == nullptr) return {};
  std::vector<Wide<Type>> wide(static_cast<size_t>(count));
  const auto widen_from = [&](auto stored) HWY_ATTR {
    using Stored = decltype(stored);
    for_each_vector(d, count, [&](int64_t i, auto span) HWY_ATTR {
      store(d, WideType<Type>(), load(d, stored, static_cast<const BitsOf<Stored>*>(values) + i, span),
            wide.data() + i, span);
    });
  };
  if (type == ElementType::kFloat32 && !std::is_same_v<Type, Float64>) {
    widen_from(WideType<Type>());
  } else {
    widen_from(Type());
  }
  return wide;
}

/// Cuts the elements [begin, end) at the ends of rows. Calls body(index, column, count) for each piece in
/// order, with the index and the column of its first element.
template <class Body>
HWY_INLINE void for_each_row_piece(int64_t columns, int64_t begin, int64_t end, const Body& body) {
  while (begin < end) {
    const int64_t column = begin % columns;
    const int64_t count = columns - column < end - begin ? columns - column : end - begin;
    body(begin, column, count);
    begin += count;
  }
}

/// Calls run(tag) with the tag of the stored type, e.g. BFloat16().
template <class Run>
HWY_INLINE void with_type(ElementType type, const Run& run) {
  switch (type) {
    case ElementType::kFloat32:
      return run(Float32());
    case ElementType::kFloat16:
      return run(Float16());
    case ElementType::kBFloat16:
      return run(BFloat16());
    case ElementType::kFloat64:
      return run(Float64());
  }
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
