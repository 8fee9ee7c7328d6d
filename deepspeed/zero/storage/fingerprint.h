// A hash of a tensor's bits, which lets ranks compare values without sending them.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Hashes the bits of `values`, a dense tensor with memory. Two different tensors have the same hash only by
/// chance, once in 2^64. Device tensors are copied to the host in pieces.
uint64_t fingerprint(const at::Tensor& values);

}  // namespace deepspeed::zero
