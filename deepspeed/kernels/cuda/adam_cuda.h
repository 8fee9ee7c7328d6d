// Adam on CUDA is launched on the device's current stream. Without CUDA its twin in no_cuda/ throws.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/adam_arguments.h"

namespace deepspeed::kernels {

/// Updates arrays on the CUDA device `device_index`. Returns before the kernel has run.
void adam_cuda(const AdamArrays& arrays, const AdamConstants& constants, int device_index);

}  // namespace deepspeed::kernels
