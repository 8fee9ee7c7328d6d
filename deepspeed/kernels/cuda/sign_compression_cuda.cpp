#include "deepspeed/kernels/cuda/sign_compression_cuda.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/cuda/sign_compression_kernel.h"

namespace deepspeed::kernels {
namespace {

// Threads read four elements at once.
bool reads_at_once(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

void check_sign_launch(cudaError_t status, const at::Tensor& on) {
  if (status != cudaSuccess)
    raise<Error>("the launch on ", on.device(), " failed: ", cudaGetErrorString(status));
}

cudaStream_t stream_of(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

}  // namespace

void compress_signs_cuda(const at::Tensor& values, const at::Tensor& errors, const at::Tensor& bits,
                         const at::Tensor& scales) {
  const c10::cuda::CUDAGuard guard(values.device());
  // A part of a tensor may begin anywhere.
  const at::Tensor x = reads_at_once(values) ? values : values.clone();
  const at::Tensor error = reads_at_once(errors) ? errors : errors.clone();
  check_sign_launch(
      launch_compress_signs(x.data_ptr<float>(), error.data_ptr<float>(), bits.data_ptr<uint8_t>(),
                            scales.data_ptr<float>(), scales.numel(), stream_of(values)),
      values);
  if (!x.is_same(values)) values.copy_(x);
  if (!error.is_same(errors)) errors.copy_(error);
}

void add_signs_cuda(const at::Tensor& bits, const at::Tensor& scales, const at::Tensor& sums) {
  const c10::cuda::CUDAGuard guard(sums.device());
  const at::Tensor sum = reads_at_once(sums) ? sums : sums.clone();
  check_sign_launch(launch_add_signs(bits.const_data_ptr<uint8_t>(), scales.const_data_ptr<float>(),
                                     sum.data_ptr<float>(), scales.numel(), stream_of(sums)),
                    sums);
  if (!sum.is_same(sums)) sums.copy_(sum);
}

}  // namespace deepspeed::kernels
