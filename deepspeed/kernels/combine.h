// Arrays of several ranks are reduced here to one, in one pass. Links no torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "deepspeed/kernels/arguments/combine_arguments.h"

namespace deepspeed::kernels {

/// Copies between ranges that do not overlap. All stores are visible to others before a later release.
void copy(void* to, const void* from, size_t bytes, Stores stores);

int64_t size_of(CombineType type);  // bytes of an element

/// Says whether elements of this type can be combined so: averages need floating types, bitwise operations
/// integers.
bool can_combine(CombineOp op, CombineType type);

/// Says whether sums of elements of this type can be multiplied on the way: 16-bit types would be rounded
/// once less than by a sum and a product of their own.
bool can_scale(CombineType type);

/// Sets to[i] to terms[0][i] op terms[1][i] op ..., in this order: an element depends neither on `numel` nor
/// on the instruction set. 16-bit types are combined in fp32 and rounded once, to the nearest even. Integers
/// wrap around. A NaN among the terms of a smallest or largest is the result. `to` may be one of the terms,
/// and must not overlap one otherwise. Throws UsageError where there are no terms, or can_combine() says no.
/// Floating types alone are stored past the caches, and nothing is where `to` is one of the terms: its lines
/// are in the caches then. A sum of can_scale() is multiplied by `factor`, which is rounded to its type,
/// before it is stored; factor != 1 throws UsageError elsewhere.
void combine(CombineOp op, CombineType type, void* to, std::span<const void* const> terms, int64_t numel,
             Stores stores = Stores::kCached, double factor = 1.0);

}  // namespace deepspeed::kernels
