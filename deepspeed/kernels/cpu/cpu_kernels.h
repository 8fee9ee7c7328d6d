// The kernels of the CPU. Those that end in _cpu share the work out among threads; those that end in _simd do
// a part of it in one, on the best instruction set of the machine.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/adam_arguments.h"
#include "deepspeed/kernels/arguments/element_type.h"
#include "deepspeed/kernels/arguments/update_rules.h"

namespace deepspeed::kernels {

/// Updates arrays in main memory. The result does not depend on the number of threads.
void adam_cpu(const AdamArrays& arrays, const AdamConstants& constants);

/// Updates the elements [begin, end). Every way to cut the range gives the same bits: the last elements go
/// through the same vector code, padded. With fp32 moments every instruction set gives the same bits too,
/// since no multiply-add is contracted. With bf16 moments those that fuse them (AVX2 and later, NEON, SVE,
/// CUDA) agree with one another, and the others with one another; between the two a moment may be rounded to
/// its neighbour. `stream`: write the 16-bit copy past the caches.
void adam_simd(const AdamArrays& arrays, const AdamConstants& constants, int64_t begin, int64_t end,
               bool stream);

/// Updates arrays in main memory. The result does not depend on the number of threads.
void update_cpu(const UpdateArrays& arrays, const UpdateRule& rule);

/// Updates the elements [begin, end). Every instruction set, and every way to cut the range, gives the same
/// bits: no multiply-add is contracted, and the last elements go through the same vector code, padded.
void update_simd(const UpdateArrays& arrays, const UpdateRule& rule, int64_t begin, int64_t end);

/// Sums blocks of a fixed size, each by one thread, and adds them in order: any number of threads gives the
/// same bits.
double sum_of_squares_cpu(const void* values, ElementType type, int64_t numel);

/// Returns the sum of squares of [begin, end) in double. The order of the sum depends on the instruction set
/// alone.
double sum_of_squares_simd(const void* values, ElementType type, int64_t begin, int64_t end);

}  // namespace deepspeed::kernels
