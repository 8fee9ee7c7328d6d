// Streams of random numbers: the state of torch's default generators, and seeds that differ by rank.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::device {

/// The state of the default CPU generator: a byte tensor that torch.set_rng_state() takes.
DEEPSPEED_API at::Tensor cpu_rng_state();
/// Sets the default CPU generator's state. Throws UsageError where `state` is no byte tensor of the right
/// size.
DEEPSPEED_API void set_cpu_rng_state(const at::Tensor& state);

/// The state of the current CUDA device's default generator. Throws NotSupportedError where there is none.
DEEPSPEED_API at::Tensor cuda_rng_state();
DEEPSPEED_API void set_cuda_rng_state(const at::Tensor& state);

/// Seeds the default generators of the CPU and, where there are any, of all CUDA devices.
DEEPSPEED_API void seed_generators(uint64_t seed);

/// What a stream is for; streams of different purpose, rank or seed are independent.
enum class RngStream : uint64_t { kInitialization = 1, kDropout = 2, kData = 3 };

/// The seed of a stream. Neighbouring seeds and ranks give unrelated values; the same arguments give the same
/// one on every machine.
DEEPSPEED_API uint64_t stream_seed(uint64_t seed, RngStream stream, int rank);

/// Seeds the default generators and puts their former state back at the end of the scope.
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
