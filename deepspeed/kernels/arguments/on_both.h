// Marks small functions that the CPU's code and CUDA kernels share.
#pragma once

#if defined(__CUDACC__)
#define DEEPSPEED_ON_BOTH __host__ __device__  // compiled for the host and the device
#else
#define DEEPSPEED_ON_BOTH
#endif
