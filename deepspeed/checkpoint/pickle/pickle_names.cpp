#include "deepspeed/checkpoint/pickle/pickle_names.h"

#include <algorithm>
#include <array>
#include <utility>

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

constexpr auto kClasses = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"deepspeed.runtime.fp16.loss_scaler", "LossScaler"},
    {"deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler"},
    {"deepspeed.runtime.fp16.loss_scaler", "LossScaleConfig"},
    {"deepspeed.runtime.fp16.loss_scaler", "LossScaleProfile"},
    {"deepspeed.runtime.zero.config", "ZeroStageEnum"},
    {"deepspeed.utils.tensor_fragment", "fragment_address"},
    {"deepspeed.checkpoint.universal_checkpoint", "SubparamShape"},
    {"argparse", "Namespace"},
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

bool is_known_class(std::string_view module, std::string_view name) {
  return std::ranges::find(kClasses, std::pair(module, name)) != kClasses.end();
}

}  // namespace deepspeed::checkpoint
