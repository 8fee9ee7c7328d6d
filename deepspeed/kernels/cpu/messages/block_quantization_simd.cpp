// One pass finds a block's largest absolute value, and a second writes the codes. Dequantizing takes one
// pass. Each uses the machine's best instruction set and pads the last elements.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "deepspeed/kernels/cpu/messages/message_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/messages/block_quantization_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "deepspeed/kernels/cpu/half_precision-inl.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

constexpr int64_t kMostCodes = 2048;  // per block

/// Calls work(vector, index of its first element) for all elements as fp32. The last vector is padded with
/// zeros.
template <class Type, class Work>
HWY_INLINE void for_each_vector(const typename Type::Bits* HWY_RESTRICT values, int64_t numel,
                                const Work& work) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= numel; i += lanes) work(load(d, Type(), values + i), i);
  if (i == numel) return;
  typename Type::Bits rest[hn::MaxLanes(hn::ScalableTag<float>())] = {};
  std::memcpy(rest, values + i, static_cast<size_t>(numel - i) * sizeof(*rest));
  work(load(d, Type(), rest), i);
}

/// Returns the largest absolute value; nan if an element is not finite.
template <class Type>
HWY_NOINLINE float largest_of(const typename Type::Bits* HWY_RESTRICT values, int64_t numel) {
  const hn::ScalableTag<float> d;
  auto largest = hn::Zero(d);
  auto odd = hn::Zero(d);  // x - x is 0 for finite x, otherwise nan
  for_each_vector<Type>(values, numel, [&](auto x, int64_t) {
    largest = hn::Max(largest, hn::Abs(x));
    odd = hn::Add(odd, hn::Sub(x, x));
  });
  const float sum = hn::GetLane(hn::SumOfLanes(d, odd));
  return sum == 0 ? hn::GetLane(hn::MaxOfLanes(d, largest)) : std::numeric_limits<float>::quiet_NaN();
}

/// Returns the codes of the nearest e4m3 numbers, which are the bits of those numbers. |x| is at most 448, or
/// slightly more.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToSigned<D>> float8_of(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto absolute = hn::Abs(x);
  const auto bits = hn::BitCast(di, absolute);
  const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(di, x)), hn::Set(di, 0x80));
  // Rounds half to even in the fourth digit, and replaces the exponent's bias 127 by 7.
  const auto last = hn::And(hn::ShiftRight<20>(bits), hn::Set(di, 1));
  const auto rounded = hn::ShiftRight<20>(hn::Add(hn::Add(bits, last), hn::Set(di, 0x7ffff)));
  const auto normal = hn::Sub(rounded, hn::Set(di, (127 - 7) << 3));
  // A sum with 2^14 has its last digit at 2^-9, the smallest e4m3 number.
  const auto magic = hn::Set(d, 0x1p14F);
  const auto small = hn::Sub(hn::BitCast(di, hn::Add(absolute, magic)), hn::BitCast(di, magic));
  const auto is_small = hn::RebindMask(di, hn::Lt(absolute, hn::Set(d, 0x1p-6F)));
  return hn::Or(sign, hn::IfThenElse(is_small, small, normal));
}

/// Returns the e4m3 numbers that the codes, from 0 to 255, encode.
template <class D>
HWY_INLINE hn::Vec<D> from_float8(D d, hn::Vec<hn::RebindToSigned<D>> codes) {
  const hn::RebindToSigned<D> di;
  const auto magnitude = hn::And(codes, hn::Set(di, 0x7f));
  const auto normal = hn::BitCast(d, hn::ShiftLeft<20>(hn::Add(magnitude, hn::Set(di, (127 - 7) << 3))));
  const auto small = hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, 0x1p-9F));
  const auto is_small = hn::RebindMask(d, hn::Lt(magnitude, hn::Set(di, 8)));
  const auto sign = hn::BitCast(d, hn::ShiftLeft<24>(hn::And(codes, hn::Set(di, 0x80))));
  return hn::Or(hn::IfThenElse(is_small, small, normal), sign);
}

template <class Type>
HWY_NOINLINE void write_float8(const typename Type::Bits* HWY_RESTRICT values, int64_t numel, float scale,
                               uint8_t* HWY_RESTRICT codes) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const auto factor = hn::Set(d, scale);
  for_each_vector<Type>(values, numel, [&](auto x, int64_t place) {
    hn::StoreU(hn::DemoteTo(d8, float8_of(d, hn::Mul(x, factor))), d8, codes + place);
  });
}

template <class Type>
HWY_NOINLINE void write_codes(const typename Type::Bits* HWY_RESTRICT values, int64_t numel, float scale,
                              int bits, int8_t* HWY_RESTRICT codes) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<int8_t, decltype(d)> d8;
  const auto factor = hn::Set(d, scale);
  const auto least = hn::Set(d, static_cast<float>(-(1 << (bits - 1))));
  const auto most = hn::Set(d, static_cast<float>((1 << (bits - 1)) - 1));
  for_each_vector<Type>(values, numel, [&](auto x, int64_t place) {
    const auto scaled = hn::Min(hn::Max(hn::Mul(x, factor), least), most);
    // The code's range contains the rounded numbers, so rounding and clamping may come in any order.
    hn::StoreU(hn::DemoteTo(d8, hn::BitCast(di, hn::NearestInt(scaled))), d8, codes + place);
  });
}

template <class Type>
HWY_INLINE void quantize_as(const QuantizedBlock& block) {
  const auto* const values = static_cast<const typename Type::Bits*>(block.values);
  const float largest = largest_of<Type>(values, block.numel);
  const size_t num_bytes = static_cast<size_t>((block.numel * bits_of(block.code) + 7) / 8);
  if (std::isnan(largest)) {
    *block.scale = largest;
    std::memset(block.codes, 0, num_bytes);
    return;
  }
  const float scale = largest == 0 ? 1.0F : std::min(largest_code(block.code) / largest, kLargestScale);
  *block.scale = 1.0F / scale;
  int8_t codes[kMostCodes + hn::MaxLanes(hn::ScalableTag<float>())];
  if (block.code == BlockCode::kFloat8) {
    write_float8<Type>(values, block.numel, scale, reinterpret_cast<uint8_t*>(codes));
  } else {
    write_codes<Type>(values, block.numel, scale, bits_of(block.code), codes);
  }
  if (block.code != BlockCode::kInt4) {
    std::memcpy(block.codes, codes, num_bytes);
    return;
  }
  if (block.numel % 2 != 0) codes[block.numel] = 0;
  for (size_t i = 0; i < num_bytes; ++i) {
    const auto low = static_cast<uint8_t>(codes[2 * i]), high = static_cast<uint8_t>(codes[2 * i + 1]);
    block.codes[i] = static_cast<uint8_t>((low & 0xfU) | (high << 4U));
  }
}

template <class Type, class D>
HWY_INLINE void store(D d, hn::Vec<D> value, typename Type::Bits* HWY_RESTRICT to) {
  if constexpr (std::is_same_v<Type, Float32>) {
    hn::StoreU(value, d, to);
  } else {
    hn::StoreU(round_to(d, Type(), value), hn::Rebind<uint16_t, D>(), to);
  }
}

/// Writes the decoded codes times the scale. is_float8: the codes are e4m3 numbers.
template <class Type, bool is_float8>
HWY_NOINLINE void write_values(const int8_t* HWY_RESTRICT codes, int64_t numel, float scale,
                               typename Type::Bits* HWY_RESTRICT values) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<int8_t, decltype(d)> d8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, scale);
  const auto value_at = [&](int64_t place) {
    const auto code = hn::PromoteTo(di, hn::LoadU(d8, codes + place));
    if constexpr (is_float8) return hn::Mul(from_float8(d, code), factor);
    return hn::Mul(hn::ConvertTo(d, code), factor);
  };
  int64_t i = 0;
  for (; i + lanes <= numel; i += lanes) store<Type>(d, value_at(i), values + i);
  if (i == numel) return;
  typename Type::Bits rest[hn::MaxLanes(hn::ScalableTag<float>())];
  store<Type>(d, value_at(i), rest);
  std::memcpy(values + i, rest, static_cast<size_t>(numel - i) * sizeof(*rest));
}

template <class Type>
HWY_INLINE void dequantize_as(const QuantizedBlock& block) {
  int8_t codes[kMostCodes + hn::MaxLanes(hn::ScalableTag<float>())] = {};
  if (block.code != BlockCode::kInt4) {
    std::memcpy(codes, block.codes, static_cast<size_t>(block.numel));
  } else {
    for (int64_t i = 0; i < (block.numel + 1) / 2; ++i) {
      codes[2 * i] = static_cast<int8_t>(static_cast<int8_t>(block.codes[i] << 4) >> 4);
      codes[2 * i + 1] = static_cast<int8_t>(static_cast<int8_t>(block.codes[i]) >> 4);
    }
  }
  auto* const values = static_cast<typename Type::Bits*>(block.values);
  if (block.code == BlockCode::kFloat8)
    return write_values<Type, true>(codes, block.numel, *block.scale, values);
  write_values<Type, false>(codes, block.numel, *block.scale, values);
}

void quantize_block_of_target(const QuantizedBlock& block) {
  if (block.type == ElementType::kFloat32) return quantize_as<Float32>(block);
  block.type == ElementType::kFloat16 ? quantize_as<Float16>(block) : quantize_as<BFloat16>(block);
}

void dequantize_block_of_target(const QuantizedBlock& block) {
  if (block.type == ElementType::kFloat32) return dequantize_as<Float32>(block);
  block.type == ElementType::kFloat16 ? dequantize_as<Float16>(block) : dequantize_as<BFloat16>(block);
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepspeed::kernels {

HWY_EXPORT(quantize_block_of_target);
HWY_EXPORT(dequantize_block_of_target);

void quantize_block_simd(const QuantizedBlock& block) {
  HWY_DYNAMIC_DISPATCH(quantize_block_of_target)(block);
}
void dequantize_block_simd(const QuantizedBlock& block) {
  HWY_DYNAMIC_DISPATCH(dequantize_block_of_target)(block);
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
