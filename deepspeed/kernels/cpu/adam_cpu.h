// Adam on CPU runs the vector code on at::get_num_threads() threads.
#pragma once

#include "deepspeed/kernels/arguments/adam_arguments.h"

namespace deepspeed::kernels {

/// Updates arrays in main memory. The result does not depend on the number of threads.
void adam_cpu(const AdamArrays& arrays, const AdamConstants& constants);

}  // namespace deepspeed::kernels
