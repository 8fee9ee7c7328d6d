// Lends out the memory of tensors whose values are not needed for a while.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::device {

/// Lets other tensors of the pool (large_tensors.h) use a contiguous tensor's memory. The tensor's values are
/// lost, and undefined until it is written. Does nothing for tensors outside the pool.
void lend_memory(const at::Tensor& tensor);
/// Backs a contiguous tensor with idle memory of other tensors. Call it before the tensor is written:
/// otherwise the system provides new pages, which takes longer. Values written since lend_memory() stay.
void fetch_memory(const at::Tensor& tensor);

}  // namespace deepspeed::device
