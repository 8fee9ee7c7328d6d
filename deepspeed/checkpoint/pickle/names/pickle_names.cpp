#include "deepspeed/checkpoint/pickle/names/pickle_names.h"

#include <algorithm>
#include <array>

namespace deepspeed::checkpoint {
namespace {

struct TypeNames {
  at::ScalarType type;
  std::string_view dtype;
  std::string_view storage;
};

constexpr auto kTypes = std::to_array<TypeNames>({
    {at::kFloat, "float32", "FloatStorage"},
    {at::kDouble, "float64", "DoubleStorage"},
    {at::kHalf, "float16", "HalfStorage"},
    {at::kBFloat16, "bfloat16", "BFloat16Storage"},
    {at::kLong, "int64", "LongStorage"},
    {at::kInt, "int32", "IntStorage"},
    {at::kShort, "int16", "ShortStorage"},
    {at::kChar, "int8", "CharStorage"},
    {at::kByte, "uint8", "ByteStorage"},
    {at::kBool, "bool", "BoolStorage"},
    {at::kComplexFloat, "complex64", "ComplexFloatStorage"},
    {at::kComplexDouble, "complex128", "ComplexDoubleStorage"},
    {at::kUInt16, "uint16", ""},
    {at::kUInt32, "uint32", ""},
    {at::kUInt64, "uint64", ""},
    {at::kFloat8_e4m3fn, "float8_e4m3fn", ""},
    {at::kFloat8_e5m2, "float8_e5m2", ""},
});

}  // namespace

std::string_view dtype_name(at::ScalarType type) {
  const auto* found = std::ranges::find(kTypes, type, &TypeNames::type);
  return found == kTypes.end() ? std::string_view() : found->dtype;
}

std::optional<at::ScalarType> dtype_of_name(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &TypeNames::dtype);
  return found == kTypes.end() ? std::nullopt : std::optional(found->type);
}

std::string_view storage_class(at::ScalarType type) {
  const auto* found = std::ranges::find(kTypes, type, &TypeNames::type);
  return found == kTypes.end() ? std::string_view() : found->storage;
}

std::optional<at::ScalarType> dtype_of_storage_class(std::string_view name) {
  if (name.empty()) return std::nullopt;
  const auto* found = std::ranges::find(kTypes, name, &TypeNames::storage);
  return found == kTypes.end() ? std::nullopt : std::optional(found->type);
}

}  // namespace deepspeed::checkpoint
