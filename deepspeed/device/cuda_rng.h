// The default generator of the current CUDA device; the twin without CUDA has none.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace deepspeed::device {

/// Undefined where there is no device.
at::Tensor cuda_rng_state();
void set_cuda_rng_state(const at::Tensor& state);
void seed_cuda_rng(uint64_t seed);

}  // namespace deepspeed::device
