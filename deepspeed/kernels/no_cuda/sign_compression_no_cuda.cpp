#include "deepspeed/base/error.h"
#include "deepspeed/kernels/cuda/sign_compression_cuda.h"

namespace deepspeed::kernels {
namespace {

[[noreturn]] void refuse_signs() {
  raise<NotSupportedError>(
      "the momenta lie on a CUDA device, but this library was built ",
      "without CUDA kernels; build it with -DDEEPSPEED_CUDA=ON, or move them to the CPU");
}

}  // namespace

void compress_signs_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  refuse_signs();
}

void add_signs_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&) { refuse_signs(); }

}  // namespace deepspeed::kernels
