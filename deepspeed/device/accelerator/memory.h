// Measures how much memory the process uses.
#pragma once

#include <cstdint>

namespace deepspeed::device {

/// Returns the process's bytes in physical memory. The second function returns their peak since the start.
/// Throws IoError if /proc cannot be read.
int64_t resident_bytes();
int64_t peak_resident_bytes();

/// Returns the bytes of tensors on the current CUDA device. The second function returns their peak. Both
/// return 0 without a CUDA device.
int64_t cuda_allocated_bytes();
int64_t cuda_peak_allocated_bytes();

/// Returns the bytes that tensors can still take on a CUDA device. The driver is asked only at the process's
/// first call for the device. Later calls only subtract what tensors take, which is allowed while a graph is
/// captured. Returns 0 if the allocator cannot tell.
int64_t cuda_available_bytes(int device);

/// Returns the bytes of host memory that can still be taken. It is the smallest of what the system has free
/// and what the cgroup and the process's own limits (RLIMIT_DATA, RLIMIT_AS) allow.
int64_t available_host_bytes();

}  // namespace deepspeed::device
