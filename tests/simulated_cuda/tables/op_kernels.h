// The kernels of the fused operators over the simulated device.
#pragma once

#include "deepspeed/kernels/cuda/cuda_kernels.h"

namespace deepspeed::kernels {

using OpLaunches = decltype(CudaKernels::ops);

/// Returns the entries of the fused operators in the table of kernels.
OpLaunches simulated_ops();

}  // namespace deepspeed::kernels
