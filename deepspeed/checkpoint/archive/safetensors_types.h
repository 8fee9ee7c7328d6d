// Lists the dtypes of safetensors with their names in a header.
#pragma once

#include <array>
#include <string_view>

#include <c10/core/ScalarType.h>

namespace deepspeed::checkpoint {

struct SafetensorsType {
  at::ScalarType type;
  std::string_view name;
};
inline constexpr auto kSafetensorsTypes = std::to_array<SafetensorsType>({{at::kFloat, "F32"},
                                                                          {at::kDouble, "F64"},
                                                                          {at::kHalf, "F16"},
                                                                          {at::kBFloat16, "BF16"},
                                                                          {at::kLong, "I64"},
                                                                          {at::kInt, "I32"},
                                                                          {at::kShort, "I16"},
                                                                          {at::kChar, "I8"},
                                                                          {at::kByte, "U8"},
                                                                          {at::kBool, "BOOL"},
                                                                          {at::kUInt16, "U16"},
                                                                          {at::kUInt32, "U32"},
                                                                          {at::kUInt64, "U64"},
                                                                          {at::kFloat8_e4m3fn, "F8_E4M3"},
                                                                          {at::kFloat8_e5m2, "F8_E5M2"}});

}  // namespace deepspeed::checkpoint
