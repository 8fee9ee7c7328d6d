// Adam's kernel is launched with raw pointers, sizes and a stream.
#pragma once

#include <cuda_runtime_api.h>

#include "deepspeed/kernels/arguments/adam_arguments.h"

namespace deepspeed::kernels {

/// Launches the kernel over arrays on the current device. Returns the launch's error.
cudaError_t launch_adam(const AdamArrays& arrays, const AdamConstants& constants, cudaStream_t stream);

}  // namespace deepspeed::kernels
