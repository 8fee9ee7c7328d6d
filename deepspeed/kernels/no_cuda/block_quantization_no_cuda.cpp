#include "deepspeed/base/error.h"
#include "deepspeed/kernels/cuda/block_quantization_cuda.h"

namespace deepspeed::kernels {
namespace {

[[noreturn]] void refuse_quantized() {
  raise<NotSupportedError>(
      "the elements lie on a CUDA device, but this library was built ",
      "without CUDA kernels; build it with -DDEEPSPEED_CUDA=ON, or move them to the CPU");
}

}  // namespace

void quantize_blocks_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, BlockCode) {
  refuse_quantized();
}

void dequantize_blocks_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, BlockCode) {
  refuse_quantized();
}

void add_quantized_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, BlockCode) {
  refuse_quantized();
}

}  // namespace deepspeed::kernels
