#include "deepspeed/kernels/cuda/adam_cuda.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/cuda/adam_kernel.h"

namespace deepspeed::kernels {

void adam_cuda(const AdamArrays& arrays, const AdamConstants& constants, int device_index) {
  const auto index = static_cast<c10::DeviceIndex>(device_index);
  const c10::cuda::CUDAGuard guard(index);
  const cudaError_t status = launch_adam(arrays, constants, c10::cuda::getCurrentCUDAStream(index).stream());
  if (status != cudaSuccess) {
    raise<Error>("the launch on CUDA device ", device_index, " failed: ", cudaGetErrorString(status));
  }
}

}  // namespace deepspeed::kernels
