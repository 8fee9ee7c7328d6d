// The tables of functions that libdeepspeed_cuda.so exports, over the simulated device.
#pragma once

#include "deepspeed/comm/backends/nccl.h"
#include "deepspeed/device/accelerator/page_locks.h"
#include "deepspeed/device/graphs/cuda_graphs.h"
#include "deepspeed/kernels/cuda/cuda_kernels.h"

namespace deepspeed::simulated {

extern const device::PageLocks page_locks;
extern const device::CudaGraphs cuda_graphs;
extern const kernels::CudaKernels cuda_kernels;
extern const comm::NcclBackends nccl_backends;

/// Lets the next operation of NCCL fail on this rank, as after a timeout, in a group whose name has this
/// part. Its stream goes on, and the host learns of it once it has waited for that stream.
void fail_next_nccl_operation(const char* group = "");
/// From here on torch seems to have been compiled with NCCL 2.`minor`; this library is always with 2.28.
void pretend_nccl_of_torch(int minor);

}  // namespace deepspeed::simulated
