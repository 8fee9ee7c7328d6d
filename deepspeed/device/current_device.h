// The CUDA devices of the process; twins in cuda/ and no_cuda/.
#pragma once

#include <cstdint>

namespace deepspeed::device {

/// CUDA devices that this build can use: 0 without CUDA or without a device.
int num_cuda_devices();

/// The device on which CUDA tensors of this thread are made. Throws NotSupportedError in a build without
/// CUDA.
int current_cuda_device();

/// Throws NotSupportedError in a build without CUDA, UsageError for an index out of range.
void set_cuda_device(int index);

/// Seeds the default generator of every CUDA device; does nothing where there is none.
void seed_cuda_generators(uint64_t seed);

}  // namespace deepspeed::device
