#include "deepspeed/kernels/combine.h"

#include <algorithm>
#include <cstring>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/cpu/messages/message_kernels.h"

namespace deepspeed::kernels {

void copy(void* to, const void* from, size_t bytes, Stores stores) {
  if (stores == Stores::kCached) {
    std::memcpy(to, from, bytes);
  } else {
    copy_past_caches_simd(to, from, bytes);
  }
}

namespace {

bool is_floating(CombineType type) {
  return type == CombineType::kFloat32 || type == CombineType::kFloat64 || type == CombineType::kFloat16 ||
         type == CombineType::kBFloat16;
}

}  // namespace

int64_t size_of(CombineType type) {
  switch (type) {
    case CombineType::kInt8:
    case CombineType::kUint8:
      return 1;
    case CombineType::kFloat16:
    case CombineType::kBFloat16:
    case CombineType::kInt16:
      return 2;
    case CombineType::kFloat64:
    case CombineType::kInt64:
      return 8;
    case CombineType::kFloat32:
    case CombineType::kInt32:
      break;
  }
  return 4;
}

bool can_combine(CombineOp op, CombineType type) {
  const bool is_bitwise = op == CombineOp::kAnd || op == CombineOp::kOr || op == CombineOp::kXor;
  if (is_bitwise) return !is_floating(type);
  return op != CombineOp::kAverage || is_floating(type);
}

bool can_scale(CombineType type) { return type == CombineType::kFloat32 || type == CombineType::kFloat64; }

void combine(CombineOp op, CombineType type, void* to, std::span<const void* const> terms, int64_t numel,
             Stores stores, double factor) {
  if (terms.empty()) raise<UsageError>("there are no terms to combine, expected one or more");
  if (!can_combine(op, type)) {
    raise<UsageError>(
        is_floating(type)
            ? "a bitwise operation on elements of a floating type, expected integers"
            : "an average of integers, expected elements of a floating type; integers have a sum");
  }
  if (factor != 1.0 && (op != CombineOp::kSum || !can_scale(type)))
    raise<UsageError>("the factor is ", factor, ", expected 1, or a sum in fp32 or fp64");
  if (numel <= 0) return;
  if (terms.size() == 1 && factor == 1.0) {
    if (to != terms[0]) copy(to, terms[0], static_cast<size_t>(numel * size_of(type)), stores);
    return;
  }
  const bool stream =
      stores == Stores::kPastCaches && std::find(terms.begin(), terms.end(), to) == terms.end();
  combine_simd(op, type, to, terms.data(), static_cast<int64_t>(terms.size()), numel, stream, factor);
}

}  // namespace deepspeed::kernels
