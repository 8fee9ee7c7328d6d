#include "deepspeed/base/error.h"
#include "deepspeed/kernels/cuda/adam_cuda.h"

namespace deepspeed::kernels {

void adam_cuda(const AdamArrays&, const AdamConstants&, int) {
  raise<NotSupportedError>("the tensors lie on a CUDA device, but this library was built without ",
                           "CUDA kernels; build it with -DDEEPSPEED_CUDA=ON, or move the tensors to the CPU");
}

}  // namespace deepspeed::kernels
