// Allocates tensors that are made once and sent often.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace deepspeed::comm {

/// Returns an uninitialized 1-D tensor that other ranks of this machine read without a copy. That requires an
/// unpinned CPU tensor of at least 64 KiB, and a group of this process that shares memory. Otherwise returns
/// what at::empty() returns.
at::Tensor buffer(int64_t numel, const at::TensorOptions& options);
/// Returns how many bytes of shared memory this process's buffers hold, in whole pages.
int64_t shared_buffer_bytes();
/// Returns a buffer() filled with zeros.
at::Tensor zero_buffer(int64_t numel, const at::TensorOptions& options);

}  // namespace deepspeed::comm
