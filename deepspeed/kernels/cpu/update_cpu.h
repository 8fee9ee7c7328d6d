// An update rule on CPU runs the vector code on at::get_num_threads() threads.
#pragma once

#include "deepspeed/kernels/arguments/update_rules.h"

namespace deepspeed::kernels {

/// Updates arrays in main memory. The result does not depend on the number of threads.
void update_cpu(const UpdateArrays& arrays, const UpdateRule& rule);

}  // namespace deepspeed::kernels
