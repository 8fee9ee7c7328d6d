// A mark of small functions that the CPU's code and kernels of CUDA share.
#pragma once

#if defined(__CUDACC__)
#define DEEPSPEED_ON_BOTH __host__ __device__  // a function of the CPU and of the device
#else
#define DEEPSPEED_ON_BOTH
#endif
