#include <cstring>
#include <type_traits>

#include "deepspeed/kernels/cpu/cpu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/grad_stats_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "deepspeed/kernels/cpu/half_precision-inl.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

template <class Type, class DD>
HWY_INLINE hn::Vec<DD> load_wide(DD d, const typename Type::Bits* HWY_RESTRICT values) {
  if constexpr (std::is_same_v<Type, Float64>) {
    return load(d, Type(), values);
  } else {
    return hn::PromoteTo(d, load(hn::Rebind<float, DD>(), Type(), values));
  }
}

/// Returns the squares of elements that fill a vector of doubles. The square of an fp32 is exact in double.
template <class Type, class DD>
HWY_INLINE hn::Vec<DD> squares(DD d, const typename Type::Bits* HWY_RESTRICT values) {
  const auto wide = load_wide<Type>(d, values);
  return hn::Mul(wide, wide);
}

template <class Type>
HWY_NOINLINE double sum_of_squares(const typename Type::Bits* HWY_RESTRICT values, int64_t numel) {
  const hn::ScalableTag<double> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  auto sum2 = hn::Zero(d);
  auto sum3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= numel; i += 4 * lanes) {
    sum0 = hn::Add(sum0, squares<Type>(d, values + i));
    sum1 = hn::Add(sum1, squares<Type>(d, values + i + lanes));
    sum2 = hn::Add(sum2, squares<Type>(d, values + i + 2 * lanes));
    sum3 = hn::Add(sum3, squares<Type>(d, values + i + 3 * lanes));
  }
  for (; i + lanes <= numel; i += lanes) {
    sum0 = hn::Add(sum0, squares<Type>(d, values + i));
  }
  if (i < numel) {
    typename Type::Bits rest[hn::MaxLanes(hn::ScalableTag<double>())] = {};
    std::memcpy(rest, values + i, static_cast<size_t>(numel - i) * sizeof(*rest));
    sum1 = hn::Add(sum1, squares<Type>(d, rest));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

double sum_of_squares_of_target(const void* values, ElementType type, int64_t begin, int64_t end) {
  const int64_t numel = end - begin;
  if (type == ElementType::kFloat32) {
    return sum_of_squares<Float32>(static_cast<const float*>(values) + begin, numel);
  }
  if (type == ElementType::kFloat64) {
    return sum_of_squares<Float64>(static_cast<const double*>(values) + begin, numel);
  }
  const auto* const bits = static_cast<const uint16_t*>(values) + begin;
  return type == ElementType::kFloat16 ? sum_of_squares<Float16>(bits, numel)
                                       : sum_of_squares<BFloat16>(bits, numel);
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepspeed::kernels {

HWY_EXPORT(sum_of_squares_of_target);

double sum_of_squares_simd(const void* values, ElementType type, int64_t begin, int64_t end) {
  return HWY_DYNAMIC_DISPATCH(sum_of_squares_of_target)(values, type, begin, end);
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
