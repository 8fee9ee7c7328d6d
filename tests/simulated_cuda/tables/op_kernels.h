// The kernels of the fused operators over the simulated device.
#pragma once

#include "deepspeed/kernels/cuda/cuda_kernels.h"

namespace deepspeed::kernels {

/// Adds them to a table.
CudaKernels with_op_kernels(CudaKernels kernels);

}  // namespace deepspeed::kernels
