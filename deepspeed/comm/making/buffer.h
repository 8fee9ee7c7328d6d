// Memory for tensors that are made once and travel often.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace deepspeed::comm {

/// Returns an uninitialised tensor of one dimension from which the other ranks of this machine read without a
/// copy, where a group of this process shares memory with them; else, on another device and where it is
/// small, the same as at::empty().
at::Tensor buffer(int64_t numel, const at::TensorOptions& options);
/// Returns how many bytes the buffers of this process hold in memory that is shared, in whole pages.
int64_t shared_buffer_bytes();
/// Returns a buffer of zeros.
at::Tensor zero_buffer(int64_t numel, const at::TensorOptions& options);

}  // namespace deepspeed::comm
