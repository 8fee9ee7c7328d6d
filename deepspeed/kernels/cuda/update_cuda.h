// An update rule on CUDA is launched on the device's current stream. Without CUDA its twin in no_cuda/
// throws.
#pragma once

#include "deepspeed/kernels/arguments/update_rules.h"

namespace deepspeed::kernels {

/// Updates arrays on the CUDA device `device_index`. Returns before the kernel has run.
void update_cuda(const UpdateArrays& arrays, const UpdateRule& rule, int device_index);

}  // namespace deepspeed::kernels
