// A plain function hides the vector code of grad_stats, and picks the best instruction set at run time.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/element_type.h"

namespace deepspeed::kernels {

/// Returns the sum of squares of [begin, end) in double. The order of the sum depends on the instruction set
/// alone.
double sum_of_squares_simd(const void* values, ElementType type, int64_t begin, int64_t end);

}  // namespace deepspeed::kernels
