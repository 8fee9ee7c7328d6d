#include "deepspeed/device/host_pool/idle_memory.h"

#include "deepspeed/device/host_pool/large_tensors.h"

namespace deepspeed::device {
namespace {

bool may_be_pooled(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous() && tensor.nbytes() >= kLeastPooled;
}

}  // namespace

void lend_memory(const at::Tensor& tensor) {
  if (may_be_pooled(tensor)) large_block_pool().lend(tensor.data_ptr(), tensor.nbytes());
}

void fetch_memory(const at::Tensor& tensor) {
  if (may_be_pooled(tensor)) large_block_pool().fetch(tensor.data_ptr(), tensor.nbytes());
}

}  // namespace deepspeed::device
