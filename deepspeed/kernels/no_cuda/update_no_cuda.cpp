#include "deepspeed/base/error.h"
#include "deepspeed/kernels/cuda/update_cuda.h"

namespace deepspeed::kernels {

void update_cuda(const UpdateArrays&, const UpdateRule&, int) {
  raise<NotSupportedError>("the tensors lie on a CUDA device, but this library was built without ",
                           "CUDA kernels; build it with -DDEEPSPEED_CUDA=ON, or move the tensors to the CPU");
}

}  // namespace deepspeed::kernels
