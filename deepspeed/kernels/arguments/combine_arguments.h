// The arguments of combine() for code that sees raw pointers and not tensors.
#pragma once

namespace deepspeed::kernels {

/// Names the element types that combine() (kernels/combine.h) takes.
enum class CombineType {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUint8,
  kInt16,
  kInt32,
  kInt64,
};

/// Names the operations of combine(). An average is the sum divided by the number of terms.
enum class CombineOp { kSum, kAverage, kProduct, kMin, kMax, kAnd, kOr, kXor };

/// Says whether stores go through the caches. Bypassing them avoids loading the written cache lines and
/// evicts nothing, but an early read of the result costs more.
enum class Stores { kCached, kPastCaches };

}  // namespace deepspeed::kernels
