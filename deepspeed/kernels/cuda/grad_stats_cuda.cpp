#include "deepspeed/kernels/cuda/grad_stats_cuda.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/cuda/grad_stats_kernel.h"

namespace deepspeed::kernels {

at::Tensor sum_of_squares_cuda(const at::Tensor& values) {
  const c10::cuda::CUDAGuard guard(values.device());
  const at::Tensor block_sums = at::empty({kSumOfSquaresBlocks}, values.options().dtype(at::kDouble));
  const cudaError_t status = launch_sum_of_squares(
      values.const_data_ptr(), element_type(values.scalar_type()), values.numel(),
      block_sums.data_ptr<double>(), c10::cuda::getCurrentCUDAStream(values.device().index()).stream());
  if (status != cudaSuccess) {
    raise<Error>("the launch on ", values.device(), " failed: ", cudaGetErrorString(status));
  }
  return block_sums.sum();
}

}  // namespace deepspeed::kernels
