// Host memory that a device copies to and from.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace deepspeed::device {

/// Makes a tensor, (numel), in long-lived host memory. With `pin`, in a process that uses CUDA, the memory is
/// page-locked. From 1 MiB on it is rounded up only to whole pages; torch's pool of page-locked memory would
/// round up to a power of two. Throws UsageError if the system locks no more memory.
at::Tensor empty_host(int64_t numel, at::ScalarType dtype, bool pin);

/// Makes a tensor, (numel), in short-lived host memory. The memory comes from torch's pool, which locks pages
/// only once.
at::Tensor empty_host_from_pool(int64_t numel, at::ScalarType dtype, bool pin);

/// Locks the pages of [data, data + bytes) for copies to and from all devices. Call unlock_pages() before
/// they are freed, while no copy is running (synchronize_used_devices()). Throws UsageError if the system
/// refuses, NotSupportedError in a build without CUDA.
void lock_pages(void* data, size_t bytes);
void unlock_pages(void* data) noexcept;

}  // namespace deepspeed::device
