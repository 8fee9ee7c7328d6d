// How much memory the process uses.
#pragma once

#include <cstdint>

namespace deepspeed::device {

/// Bytes of the process in physical memory: now, and at most since its start (or reset_peak_resident()).
/// Throws IoError where /proc cannot be read.
int64_t resident_bytes();
int64_t peak_resident_bytes();

/// Starts a new peak at the present value. Returns false where the kernel does not allow it; the old peak
/// stays.
bool reset_peak_resident();

/// Bytes that tensors take on the current CUDA device: now, and at most so far. 0 where there is no CUDA
/// device.
int64_t cuda_allocated_bytes();
int64_t cuda_peak_allocated_bytes();

/// Bytes that tensors can still take on a CUDA device. The driver is asked at a process's first call for the
/// device; later ones, which a capture allows, subtract what tensors take. 0 where the allocator cannot tell.
int64_t cuda_available_bytes(int device);

/// Bytes of host memory that can still be taken: what the system has, or the process's group of processes
/// (cgroup) or the process itself (RLIMIT_DATA, RLIMIT_AS) may have, where that is less.
int64_t available_host_bytes();

}  // namespace deepspeed::device
