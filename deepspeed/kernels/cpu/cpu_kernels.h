// The CPU kernels. Functions ending in _cpu distribute the work over threads. Those ending in _simd do a part
// of it in one thread, with the machine's best instruction set.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/adam_arguments.h"
#include "deepspeed/kernels/arguments/element_type.h"
#include "deepspeed/kernels/arguments/update_rules.h"

namespace deepspeed::kernels {

/// Updates arrays in main memory. The result does not depend on the number of threads.
void adam_cpu(const AdamArrays& arrays, const AdamConstants& constants);

/// Makes the step for the elements [begin, end). Any division of the range gives the same bits, since the
/// last elements use the same vector code, padded. With fp32 moments all instruction sets also agree, since
/// no multiply-add is contracted. With bf16 moments the sets with fused multiply-add (AVX2 and later, NEON,
/// SVE, CUDA) agree with each other, and so do the others. Between the two groups a moment may be rounded to
/// its neighbour. `stream`: write the 16-bit copy past the caches.
void adam_simd(const AdamArrays& arrays, const AdamConstants& constants, int64_t begin, int64_t end,
               bool stream);

/// Updates arrays in main memory. The result does not depend on the number of threads.
void update_cpu(const UpdateArrays& arrays, const UpdateRule& rule);

/// Updates the elements [begin, end). All instruction sets and any division of the range give the same bits.
/// No multiply-add is contracted, and the last elements use the same vector code, padded.
void update_simd(const UpdateArrays& arrays, const UpdateRule& rule, int64_t begin, int64_t end);

/// Returns the sum of squares in double. Each thread sums blocks of a fixed size, which are added in order,
/// so any number of threads gives the same bits.
double sum_of_squares_cpu(const void* values, ElementType type, int64_t numel);

/// Returns the sum of squares of [begin, end) in double. The order of the additions depends only on the size
/// and the instruction set.
double sum_of_squares_simd(const void* values, ElementType type, int64_t begin, int64_t end);

}  // namespace deepspeed::kernels
