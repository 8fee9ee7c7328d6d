// What the null GPU offers beside CUDA's API: for tests, which find it by dlsym(), and for its NCCL.
#pragma once

#include <functional>

#include <cuda_runtime_api.h>

extern "C" {
/// Returns what was counted since the last reset, a line each: a name, a space, a number.
const char* null_gpu_counts();
void null_gpu_reset_counts();
/// Counts one call of a library over CUDA; it may be given to any stream.
void null_gpu_count(const char* name);
/// Keeps a stream busy for so long; null: the default stream of the thread's device.
void null_gpu_delay(cudaStream_t stream, int milliseconds);
/// Says whether the process has used a device.
int null_gpu_has_context(int device);
}

namespace null_gpu {

/// Gives a stream work that may wait for other processes. Captured streams keep it for each replay.
cudaError_t give_blocking_work(cudaStream_t stream, std::function<void()> work);

}  // namespace null_gpu
