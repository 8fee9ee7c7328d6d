// Kernels that are wrong on purpose, and some right forms of them.
#pragma once

#include <cuda_runtime_api.h>

namespace wrong_kernels {

enum class Kernel {
  kSum,                // right
  kSumWithoutBarrier,  // of its tree
  kSkippedBarrier,     // by the last threads
  kTwoBarriers,        // on two sides of a branch
  kLoneReturn,         // of a thread, before a barrier
  kUnwrittenShared,    // is read
  kOutsideOfShared,    // one element too far
  kOutsideOfDynamicShared,
  kOutsideOfGlobal,
  kMisalignedVector,
  kBlocksThatRace,           // all add to one number
  kBlocksThatAddAtomically,  // right
  kMaskOfAbsentLanes,
  kLaneOutsideOfMask,
  kExchangeWithoutSyncwarp,
  kExchangeWithSyncwarp,  // right
  kLongShift,
  kTooManyThreads,
  kTooMuchSharedMemory
};

/// Launches the kernel. `in` and `out`: 512 numbers of 4 bytes; kOutsideOfGlobal believes that `out` has
/// `numel`.
cudaError_t launch(Kernel kernel, const void* in, void* out, int numel);

}  // namespace wrong_kernels
