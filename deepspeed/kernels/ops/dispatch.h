// Runs a fused operator on the device of its arrays.
#pragma once

#include <c10/core/Device.h>

#include "deepspeed/kernels/cpu/ops/op_kernels.h"
#include "deepspeed/kernels/cuda/cuda_kernels.h"

namespace deepspeed::kernels {

/// Runs the kernel of `device`, the CPU or a CUDA device. Throws as launch_on() does.
template <class Arrays>
void run_op(const at::Device& device, const Arrays& arrays) {
  if (device.is_cuda()) {
    launch_on(device, arrays);
  } else {
    run_cpu(arrays);
  }
}

}  // namespace deepspeed::kernels
