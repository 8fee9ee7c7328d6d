// The CPU sums squares on at::get_num_threads() threads.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/element_type.h"

namespace deepspeed::kernels {

/// Sums blocks of a fixed size, each by one thread, and adds them in order: any number of threads gives the
/// same bits.
double sum_of_squares_cpu(const void* values, ElementType type, int64_t numel);

}  // namespace deepspeed::kernels
