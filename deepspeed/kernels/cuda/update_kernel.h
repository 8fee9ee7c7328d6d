// An update rule's kernel is launched with raw pointers, sizes and a stream.
#pragma once

#include <cuda_runtime_api.h>

#include "deepspeed/kernels/arguments/update_rules.h"

namespace deepspeed::kernels {

/// Launches the kernel over arrays on the current device. Returns the launch's error.
cudaError_t launch_update(const UpdateArrays& arrays, const UpdateRule& rule, cudaStream_t stream);

}  // namespace deepspeed::kernels
