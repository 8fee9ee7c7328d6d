// Reduces arrays of several ranks to one, in one pass. Links no torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "deepspeed/kernels/arguments/combine_arguments.h"

namespace deepspeed::kernels {

/// Copies `bytes` bytes between ranges that do not overlap. Other ranks see all stores before a later release
/// operation of this thread.
void copy(void* to, const void* from, size_t bytes, Stores stores);

int64_t size_of(CombineType type);  // bytes per element

/// Returns whether the operation supports this type. Averages need floating types, bitwise operations
/// integers.
bool can_combine(CombineOp op, CombineType type);

/// Returns whether combine() takes a factor for this type: true for fp32 and fp64. In 16 bits the scaled sum
/// would be rounded only once, unlike a sum that is multiplied afterwards.
bool can_scale(CombineType type);

/// Sets to[i] to terms[0][i] op terms[1][i] op ..., in this order. The result depends neither on `numel` nor
/// on the instruction set. 16-bit types are combined in fp32 and rounded once, to nearest even. Integers wrap
/// around. For minimum and maximum a NaN among the terms is the result. `to` may equal a term, but must not
/// overlap one partly. Throws UsageError if there are no terms or can_combine() is false. Stores bypass the
/// caches only for floating types, and never if `to` is a term: its lines are then cached already. With
/// can_scale() a sum is multiplied by `factor`, rounded to its type, before it is stored. In other cases
/// factor != 1 throws UsageError.
void combine(CombineOp op, CombineType type, void* to, std::span<const void* const> terms, int64_t numel,
             Stores stores = Stores::kCached, double factor = 1.0);

}  // namespace deepspeed::kernels
