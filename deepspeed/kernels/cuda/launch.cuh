// Kernels are launched by a plain function, so that any C++ compiler reads a .cu file.
//
// The tests run the same files on the CPU (tests/cuda_emulation), where `<<<>>>` has no meaning.
#pragma once

#include <cstddef>
#include <utility>

#include <cuda_runtime.h>

namespace deepspeed::kernels {

/// The shape of a launch: blocks and threads in one dimension, the stream, and bytes of dynamic shared
/// memory.
struct LaunchShape {
  unsigned blocks = 0, threads = 0;
  cudaStream_t stream = nullptr;
  size_t shared_bytes = 0;
};

/// Launches a kernel, which is named with its template arguments. Zero blocks mean that there is nothing to
/// do (CUDA calls them an error). Returns this launch's own error; cudaGetLastError() would also return an
/// error that an earlier call has left.
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
