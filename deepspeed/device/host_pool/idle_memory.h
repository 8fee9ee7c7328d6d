// Memory of tensors whose values nobody needs for a while.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::device {

/// Lets other tensors of the pool (large_tensors.h) have the memory of a contiguous one, whose values are
/// gone: what is read of it before it is written has any. Does nothing for tensors that lie elsewhere.
void lend_memory(const at::Tensor& tensor);
/// Gives a contiguous tensor, before it is written, memory that others have left meanwhile. Without that call
/// the system finds memory for it, which takes longer. Changes no value that was written since lend_memory().
void fetch_memory(const at::Tensor& tensor);

}  // namespace deepspeed::device
