#include "deepspeed/kernels/cuda/block_quantization_cuda.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/cuda/block_quantization_kernel.h"

namespace deepspeed::kernels {
namespace {

void launch_on_values(cudaError_t (*launch)(const QuantizedArray&, cudaStream_t), const at::Tensor& values,
                      const at::Tensor& codes, const at::Tensor& scales, BlockCode code) {
  const c10::cuda::CUDAGuard guard(values.device());
  const QuantizedArray array{.values = values.data_ptr(),
                             .type = element_type(values.scalar_type()),
                             .numel = values.numel(),
                             .codes = codes.data_ptr<uint8_t>(),
                             .scales = scales.data_ptr<float>(),
                             .code = code};
  const cudaError_t status = launch(array, c10::cuda::getCurrentCUDAStream(values.device().index()).stream());
  if (status != cudaSuccess)
    raise<Error>("the launch on ", values.device(), " failed: ", cudaGetErrorString(status));
}

}  // namespace

void quantize_blocks_cuda(const at::Tensor& values, const at::Tensor& codes, const at::Tensor& scales,
                          BlockCode code) {
  launch_on_values(&launch_quantize, values, codes, scales, code);
}

void dequantize_blocks_cuda(const at::Tensor& codes, const at::Tensor& scales, const at::Tensor& values,
                            BlockCode code) {
  launch_on_values(&launch_dequantize, values, codes, scales, code);
}

void add_quantized_cuda(const at::Tensor& codes, const at::Tensor& scales, const at::Tensor& sums,
                        BlockCode code) {
  launch_on_values(&launch_add_quantized, sums, codes, scales, code);
}

}  // namespace deepspeed::kernels
