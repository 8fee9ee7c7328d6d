#include "deepspeed/kernels/cuda/cuda_kernels.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "deepspeed/base/export.h"
#include "deepspeed/kernels/cuda/launches.h"

namespace deepspeed::kernels {
namespace {

/// Calls a launch function, whose last parameter is a stream, on the device's current stream.
template <auto launch, class... Parameters>
const char* run(int index, Parameters... parameters) {
  const auto device = static_cast<c10::DeviceIndex>(index);
  const c10::cuda::CUDAGuard guard(device);
  const cudaError_t status = launch(parameters..., c10::cuda::getCurrentCUDAStream(device).stream());
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
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
    .norm = &run<&launch_norm>,
    .norm_backward = &run<&launch_norm_backward>,
    .part_sums = &run<&launch_part_sums>,
    .bias_gelu = &run<&launch_bias_gelu>,
    .bias_gelu_backward = &run<&launch_bias_gelu_backward>,
    .swiglu = &run<&launch_swiglu>,
    .swiglu_backward = &run<&launch_swiglu_backward>,
    .dropout = &run<&launch_dropout>,
    .masked_softmax = &run<&launch_masked_softmax>,
    .softmax_backward = &run<&launch_softmax_backward>,
    .rotary = &run<&launch_rotary>,
    .cross_entropy = &run<&launch_cross_entropy>,
    .embedding_gradient = &run<&launch_embedding_gradient>,
};
}

}  // namespace deepspeed::kernels
