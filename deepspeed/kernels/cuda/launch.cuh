// Launches kernels with a plain function, so that any C++ compiler can read a .cu file.
//
// The tests run the same files on the CPU (tests/cuda_emulation), which has no `<<<>>>`.
#pragma once

#include <cstddef>
#include <utility>

#include <cuda_runtime.h>

namespace deepspeed::kernels {

/// Describes a launch. Blocks and threads have one dimension; shared_bytes is dynamic shared memory.
struct LaunchShape {
  unsigned blocks = 0, threads = 0;
  cudaStream_t stream = nullptr;
  size_t shared_bytes = 0;
};

/// Launches a kernel, given with its template arguments. With zero blocks it does nothing, since CUDA would
/// report an error. Returns this launch's own error; cudaGetLastError() would also return an error left by an
/// earlier call.
template <class... Parameters, class... Arguments>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const LaunchShape& shape, Arguments&&... arguments) {
  if (shape.blocks == 0) return cudaSuccess;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace deepspeed::kernels
