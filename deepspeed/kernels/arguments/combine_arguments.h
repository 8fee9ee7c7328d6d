// What is combined, and how, for code that sees raw pointers and not tensors.
#pragma once

namespace deepspeed::kernels {

/// Names the types of elements that combine() (kernels/combine.h) takes.
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

/// Says what becomes of the elements. An average is the sum divided by the number of terms.
enum class CombineOp { kSum, kAverage, kProduct, kMin, kMax, kAnd, kOr, kXor };

/// Where stores go. Past the caches, they save reading the lines that they fill, and push nothing out; who
/// reads them soon pays for it.
enum class Stores { kCached, kPastCaches };

}  // namespace deepspeed::kernels
