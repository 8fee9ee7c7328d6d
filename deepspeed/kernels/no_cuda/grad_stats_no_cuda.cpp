#include "deepspeed/base/error.h"
#include "deepspeed/kernels/cuda/grad_stats_cuda.h"

namespace deepspeed::kernels {

at::Tensor sum_of_squares_cuda(const at::Tensor&) {
  raise<NotSupportedError>("the gradient lies on a CUDA device, but this library was built ",
                           "without CUDA kernels; build it with -DDEEPSPEED_CUDA=ON, or move it to the CPU");
}

}  // namespace deepspeed::kernels
