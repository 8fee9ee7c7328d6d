// Sum of squares on CPU on at::get_num_threads() threads.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/element_type.h"

namespace deepspeed::kernels {

/// Blocks of a fixed size, each summed by one thread, then added in order: the same bits for any number of
/// threads.
double sum_of_squares_cpu(const void* values, ElementType type, int64_t numel);

}  // namespace deepspeed::kernels
