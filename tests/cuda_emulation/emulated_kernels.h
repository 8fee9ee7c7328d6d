// What the tests of emulated kernels share: arrays that both sides work on, and a fixture that fails on
// findings.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include "deepspeed/kernels/arguments/element_type.h"

#include "cuda_emulation/emulation/grid.h"

namespace deepspeed::kernels {

/// What the elements of an array are; kBits16 and kByte are compared as they stand.
enum class Type { kFloat, kHalf, kBFloat16, kDouble, kBits16, kByte };

inline size_t size_of(Type type) {
  return type == Type::kDouble ? 8 : type == Type::kFloat ? 4 : type == Type::kByte ? 1 : 2;
}

inline ElementType element(Type type) {
  switch (type) {
    case Type::kHalf:
      return ElementType::kFloat16;
    case Type::kBFloat16:
      return ElementType::kBFloat16;
    case Type::kDouble:
      return ElementType::kFloat64;
    default:
      return ElementType::kFloat32;
  }
}

/// Random numbers that are the same everywhere.
class Random {
 public:
  explicit Random(int64_t seed) : state_(static_cast<uint64_t>(seed) * 0x9e3779b97f4a7c15ULL + 1) {}

  uint64_t bits() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_ * 0x2545f4914f6cdd1dULL;
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double normal() {
    return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform());
  }
  /// Returns a number that kernels may get wrong: limits of the types, and values halfway between two.
  double special(bool may_be_negative) {
    using Limits = std::numeric_limits<float>;
    const double all[] = {0.0,
                          Limits::denorm_min(),
                          1e-40,
                          0x1p-126,
                          0x1p-24,
                          0x1p-14,
                          6e-8,
                          65504,
                          65519.996,
                          65520,
                          1e30,
                          3.4e38,
                          1.0,
                          Limits::infinity(),
                          0x1.01p0,
                          0x1.03p0,
                          0x1.008p0,
                          0x1p100,
                          448,
                          127.5,
                          Limits::quiet_NaN()};
    const double value = all[bits() % std::size(all)];
    return may_be_negative && bits() % 2 == 0 ? -value : value;
  }
  double special_or_normal(bool has_specials) {
    return has_specials && uniform() < 0.2 ? special(true) : normal();
  }

 private:
  uint64_t state_;
};

inline void store(Type type, double value, char* at) {
  const auto put = [at](auto v) { std::memcpy(at, &v, sizeof(v)); };
  if (type == Type::kDouble) return put(value);
  if (type == Type::kFloat) return put(static_cast<float>(value));
  if (type == Type::kHalf) return put(__float2half_rn(static_cast<float>(value)));
  put(__float2bfloat16_rn(static_cast<float>(value)));
}

inline double load(Type type, const char* at) {
  const auto get = [at](auto value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  if (type == Type::kDouble) return get(double{});
  if (type == Type::kFloat) return get(float{});
  const uint16_t bits = get(uint16_t{});
  return type == Type::kHalf ? __half2float(__ushort_as_half(bits))
                             : __bfloat162float(__ushort_as_bfloat16(bits));
}

/// An array on the CPU, and its twin on the device, which has exactly its bytes, `offset` elements behind
/// where packs lie.
struct TwinArray {
  TwinArray(Type t, int64_t n, int64_t offset = 0)
      : type(t), numel(n), cpu(bytes_of(n)), device(bytes_of(n), bytes_of(offset)) {}

  /// Sets both to value(i), a double.
  template <class Value>
  void fill(const Value& value) {
    for (int64_t i = 0; i < numel; ++i) store(type, value(i), cpu.data() + bytes_of(i));
    copy_to_device();
  }
  void copy_to_device() {
    if (numel != 0) std::memcpy(device.data(), cpu.data(), cpu.size());
  }
  size_t bytes_of(int64_t elements) const { return static_cast<size_t>(elements) * size_of(type); }
  void* on_cpu() { return numel != 0 ? cpu.data() : nullptr; }
  void* on_device() { return numel != 0 ? device.data() : nullptr; }
  template <class T>
  T* cpu_as() {
    return reinterpret_cast<T*>(cpu.data());
  }
  template <class T>
  T* device_as() {
    return static_cast<T*>(device.data());
  }

  /// Describes the first element whose bits differ; "" if there is none. All nans are alike.
  std::string difference() const {
    for (int64_t i = 0; i < numel; ++i) {
      const char* const a = cpu.data() + bytes_of(i);
      const char* const b = static_cast<const char*>(device.data()) + bytes_of(i);
      if (std::memcmp(a, b, size_of(type)) == 0) continue;
      const bool is_number = type != Type::kBits16 && type != Type::kByte;
      const double x = is_number ? load(type, a) : 0, y = is_number ? load(type, b) : 0;
      if (std::isnan(x) && std::isnan(y)) continue;
      uint64_t p = 0, q = 0;
      std::memcpy(&p, a, size_of(type)), std::memcpy(&q, b, size_of(type));
      char text[160];
      std::snprintf(text, sizeof(text), "%lld: %.9g (0x%llx) on the CPU, %.9g (0x%llx) on the device",
                    static_cast<long long>(i), x, static_cast<unsigned long long>(p), y,
                    static_cast<unsigned long long>(q));
      return text;
    }
    return "";
  }

  Type type;
  int64_t numel;
  std::vector<char> cpu;
  emulation::DeviceMemory device;
};

/// Expects elements to be near: |a - b| <= tolerance * (1 + |a|).
inline void expect_near(TwinArray& twin, double tolerance, const char* what) {
  for (int64_t i = 0; i < twin.numel; ++i) {
    const double a = twin.cpu_as<float>()[i], b = twin.device_as<float>()[i];
    if ((std::isnan(a) && std::isnan(b)) || a == b) continue;
    ASSERT_NEAR(a, b, tolerance * (1 + std::abs(a))) << what << " " << i;
  }
}

/// Says whether threads run at a tenth of their speed and less, as where every access is looked at.
inline bool is_slow_build() {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#else
  return emulation::has_race_detector();
#endif
}

/// Runs a test with the threads in order, and at random. It fails on what the emulation finds.
class EmulatedKernels : public testing::TestWithParam<uint64_t> {
 protected:
  EmulatedKernels() { emulation::order_seed() = GetParam(); }
  ~EmulatedKernels() override {
    emulation::order_seed() = 0;
    for (const auto& [kind, text] : emulation::take_findings()) ADD_FAILURE() << kind << ": " << text;
  }
};

}  // namespace deepspeed::kernels
