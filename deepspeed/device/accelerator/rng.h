// Random streams: the state of torch's default generators, and seeds that differ by rank.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::device {

/// Returns the state of the default CPU generator, a byte tensor accepted by torch.set_rng_state().
DEEPSPEED_API at::Tensor cpu_rng_state();
/// Sets the default CPU generator's state. Throws UsageError if `state` is not a byte tensor of the right
/// size.
DEEPSPEED_API void set_cpu_rng_state(const at::Tensor& state);

/// Returns the state of the current CUDA device's default generator. Throws NotSupportedError without a
/// device.
DEEPSPEED_API at::Tensor cuda_rng_state();
DEEPSPEED_API void set_cuda_rng_state(const at::Tensor& state);

/// Seeds the default generators of the CPU and of all CUDA devices.
DEEPSPEED_API void seed_generators(uint64_t seed);

/// Names what a stream of random numbers is for. Streams of different purpose, rank or seed are independent.
enum class RngStream : uint64_t { kInitialization = 1, kDropout = 2, kData = 3 };

/// Returns the seed of a stream, equal on every machine. Neighbouring seeds and ranks give unrelated values.
DEEPSPEED_API uint64_t stream_seed(uint64_t seed, RngStream stream, int rank);

/// Seeds the default generators, and restores their state at the end of the scope.
class DEEPSPEED_API SeededScope {
 public:
  explicit SeededScope(uint64_t seed);
  ~SeededScope();
  SeededScope(const SeededScope&) = delete;
  SeededScope& operator=(const SeededScope&) = delete;

 private:
  at::Tensor cpu_state_;
  at::Tensor cuda_state_;  // undefined without a CUDA device
};

}  // namespace deepspeed::device
