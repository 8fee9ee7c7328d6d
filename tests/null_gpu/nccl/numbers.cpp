#include "tests/null_gpu/nccl/numbers.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace null_gpu {
namespace {

/// Calls `use` with a value of the type.
template <class Use>
void with_type(ncclDataType_t type, Use use) {
  switch (type) {
    case ncclInt8:
      return use(int8_t());
    case ncclUint8:
      return use(uint8_t());
    case ncclInt32:
      return use(int32_t());
    case ncclUint32:
      return use(uint32_t());
    case ncclInt64:
      return use(int64_t());
    case ncclUint64:
      return use(uint64_t());
    case ncclFloat16:
      return use(__half());
    case ncclBfloat16:
      return use(__nv_bfloat16());
    case ncclFloat64:
      return use(double());
    default:
      return use(float());
  }
}

template <class T>
auto wide(T value) {
  if constexpr (std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>) {
    return float(value);
  } else {
    return value;
  }
}

template <class T>
T of_operation(T a, T b, ncclRedOp_t operation) {
  switch (operation) {
    case ncclProd:
      return T(a * b);
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return T(a + b);
  }
}

}  // namespace

size_t bytes_of(ncclDataType_t type) {
  if (type == ncclFloat8e4m3 || type == ncclFloat8e5m2) return 1;
  size_t bytes = 0;
  with_type(type, [&](auto value) { bytes = sizeof value; });
  return bytes;
}

void combine(char* into, const char* from, size_t count, ncclDataType_t type, ncclRedOp_t operation) {
  with_type(type, [&](auto value) {
    using T = decltype(value);
    auto* const to = reinterpret_cast<T*>(into);
    const auto* const with = reinterpret_cast<const T*>(from);
    for (size_t i = 0; i < count; ++i) to[i] = T(of_operation(wide(to[i]), wide(with[i]), operation));
  });
}

void divide(char* numbers, size_t count, ncclDataType_t type, int by) {
  with_type(type, [&](auto value) {
    using T = decltype(value);
    auto* const all = reinterpret_cast<T*>(numbers);
    for (size_t i = 0; i < count; ++i) all[i] = T(wide(all[i]) / decltype(wide(all[i]))(by));
  });
}

}  // namespace null_gpu
