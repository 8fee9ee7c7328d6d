// A hash of a tensor's bits, by which ranks compare values without sending them.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Hashes the bits of `values`, a dense tensor with memory. Two tensors that differ have the same hash by
/// chance alone, once in 2^64. Tensors of a device are copied to the host in pieces.
uint64_t fingerprint(const at::Tensor& values);

}  // namespace deepspeed::zero
