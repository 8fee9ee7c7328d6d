#include "deepspeed/kernels/cuda/launch.cuh"

#include "cuda_emulation/wrong_kernels.h"

namespace wrong_kernels {
namespace {

constexpr int kThreads = 128;

template <bool kHasBarrier>
__global__ void sum(const float* in, float* out) {
  __shared__ float sums[kThreads];
  sums[threadIdx.x] = in[blockIdx.x * kThreads + threadIdx.x];
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    if (kHasBarrier) __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

__global__ void skip_barrier(int* out) {
  if (threadIdx.x < kThreads - 1) __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void wait_at_two_barriers(int* out) {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}

__global__ void return_before_barrier(int* out) {
  if (threadIdx.x == 5) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void read_unwritten(float* out) {
  __shared__ float values[kThreads];
  if (threadIdx.x % 32 != 0) values[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void leave_shared(float* out) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = 1;
  __syncthreads();
  const unsigned at = threadIdx.x + 1;
  out[threadIdx.x] = values[at];
}

__global__ void leave_dynamic_shared(float* out) {
  auto* const values = emulation::dynamic_shared<float>();
  values[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x + 1];
}

__global__ void leave_global(const float* in, float* out, int numel) {
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i <= numel) out[i] = in[i];
}

__global__ void read_vectors(const float* in, float* out) {
  const float4 v = reinterpret_cast<const float4*>(in)[threadIdx.x];
  out[threadIdx.x] = v.x + v.y + v.z + v.w;
}

template <bool kIsAtomic>
__global__ void add_from_all_blocks(float* out) {
  if (threadIdx.x != 0) return;
  if (kIsAtomic) {
    atomicAdd(out, 1.0F);
  } else {
    *out += 1.0F;
  }
}

__global__ void shuffle_for_absent_lanes(int* out) {
  int value = static_cast<int>(threadIdx.x);
  if (threadIdx.x % 32 < 16) value += __shfl_down_sync(0xffffffffU, value, 8);
  out[threadIdx.x] = value;
}

__global__ void read_lane_outside_of_mask(int* out) {
  int value = static_cast<int>(threadIdx.x);
  if (threadIdx.x % 32 < 16) value += __shfl_down_sync(0xffffU, value, 8);
  out[threadIdx.x] = value;
}

template <bool kSyncs>
__global__ void exchange_in_warp(int* out) {
  __shared__ int values[kThreads];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (kSyncs) __syncwarp();
  out[threadIdx.x] = values[threadIdx.x ^ 1U];
}

__global__ void shift_too_far(int* out, int by) {
  out[threadIdx.x] = 1 << (by + static_cast<int>(threadIdx.x));
}

}  // namespace

cudaError_t launch(Kernel kernel, const void* in, void* out, int numel) {
  using deepspeed::kernels::launch_kernel;
  using deepspeed::kernels::LaunchShape;
  const auto* const values = static_cast<const float*>(in);
  auto* const floats = static_cast<float*>(out);
  auto* const ints = static_cast<int*>(out);
  const LaunchShape one_block{.blocks = 1, .threads = kThreads},
      four_blocks{.blocks = 4, .threads = kThreads};
  switch (kernel) {
    case Kernel::kSum:
      return launch_kernel(&sum<true>, four_blocks, values, floats);
    case Kernel::kSumWithoutBarrier:
      return launch_kernel(&sum<false>, four_blocks, values, floats);
    case Kernel::kSkippedBarrier:
      return launch_kernel(&skip_barrier, one_block, ints);
    case Kernel::kTwoBarriers:
      return launch_kernel(&wait_at_two_barriers, one_block, ints);
    case Kernel::kLoneReturn:
      return launch_kernel(&return_before_barrier, one_block, ints);
    case Kernel::kUnwrittenShared:
      return launch_kernel(&read_unwritten, one_block, floats);
    case Kernel::kOutsideOfShared:
      return launch_kernel(&leave_shared, one_block, floats);
    case Kernel::kOutsideOfDynamicShared:
      return launch_kernel(&leave_dynamic_shared,
                           {.blocks = 1, .threads = kThreads, .shared_bytes = kThreads * sizeof(float)},
                           floats);
    case Kernel::kOutsideOfGlobal:
      return launch_kernel(&leave_global, {.blocks = 2, .threads = kThreads}, values, floats, numel);
    case Kernel::kMisalignedVector:
      return launch_kernel(&read_vectors, {.blocks = 1, .threads = 8}, values, floats);
    case Kernel::kBlocksThatRace:
      return launch_kernel(&add_from_all_blocks<false>, four_blocks, floats);
    case Kernel::kBlocksThatAddAtomically:
      return launch_kernel(&add_from_all_blocks<true>, four_blocks, floats);
    case Kernel::kMaskOfAbsentLanes:
      return launch_kernel(&shuffle_for_absent_lanes, one_block, ints);
    case Kernel::kLaneOutsideOfMask:
      return launch_kernel(&read_lane_outside_of_mask, one_block, ints);
    case Kernel::kExchangeWithoutSyncwarp:
      return launch_kernel(&exchange_in_warp<false>, one_block, ints);
    case Kernel::kExchangeWithSyncwarp:
      return launch_kernel(&exchange_in_warp<true>, one_block, ints);
    case Kernel::kLongShift:
      return launch_kernel(&shift_too_far, {.blocks = 1, .threads = 8}, ints, 30);
    case Kernel::kTooManyThreads:
      return launch_kernel(&skip_barrier, {.blocks = 1, .threads = 2048}, ints);
    case Kernel::kTooMuchSharedMemory:
      return launch_kernel(&skip_barrier, {.blocks = 1, .threads = kThreads, .shared_bytes = 256 * 1024},
                           ints);
  }
  return cudaErrorInvalidValue;
}

}  // namespace wrong_kernels
