#include "deepspeed/kernels/cuda/cuda_kernels.h"

#include <tuple>

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "deepspeed/base/export.h"
#include "deepspeed/kernels/cuda/launches.h"

namespace deepspeed::kernels {
namespace {

/// Calls a launch function, whose last parameter is a stream, on the device's current stream. Returns null,
/// or CUDA's error message.
template <auto start, class... Parameters>
const char* run(int index, Parameters... parameters) {
  const auto device = static_cast<c10::DeviceIndex>(index);
  const c10::cuda::CUDAGuard guard(device);
  const cudaError_t status = start(parameters..., c10::cuda::getCurrentCUDAStream(device).stream());
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

template <class... Arrays>
constexpr auto op_launches(ArraysList<Arrays...>) {
  return std::tuple(&run<&launch<Arrays>, const Arrays&>...);
}

}  // namespace

extern "C" {
DEEPSPEED_API extern const CudaKernels deepspeed_cuda_kernels;
const CudaKernels deepspeed_cuda_kernels{
    .adam = &run<&launch_adam>,
    .update = &run<&launch_update>,
    .sum_of_squares = &run<&launch_sum_of_squares>,
    .gradient_scale = &run<&launch_gradient_scale>,
    .quantize = &run<&launch_quantize>,
    .dequantize = &run<&launch_dequantize>,
    .add_quantized = &run<&launch_add_quantized>,
    .compress_signs = &run<&launch_compress_signs>,
    .add_signs = &run<&launch_add_signs>,
    .ops = op_launches(OpArrays()),
};
}

}  // namespace deepspeed::kernels
