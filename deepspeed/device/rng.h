// The default random generators.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace deepspeed::device {

/// States of the default generators as byte tensors on the CPU, as torch.get_rng_state() gives them.
struct RngState {
  at::Tensor cpu;
  at::Tensor cuda;  // undefined without a CUDA device
};

RngState rng_state();
/// Throws UsageError where a state does not fit.
void set_rng_state(const RngState& state);

/// Seeds the default generators of all devices.
void manual_seed(uint64_t seed);
/// The seed that the default CPU generator was given last.
uint64_t current_seed();

/// A seed of its own for each stream: a mix of both (splitmix64).
uint64_t stream_seed(uint64_t seed, uint64_t stream);

}  // namespace deepspeed::device
