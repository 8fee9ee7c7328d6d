// Host memory that a device copies to and from.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace deepspeed::device {

/// Makes a tensor, (numel), in host memory that lives long. With `pin`, where the process uses CUDA, it is
/// page-locked, and no larger than its pages: torch's pool of page-locked memory rounds up to powers of two.
/// Throws UsageError where the system locks no more memory.
at::Tensor empty_host(int64_t numel, at::ScalarType dtype, bool pin);

/// Makes a tensor in host memory that comes and goes: from torch's pool, where locking pages is paid for
/// once.
at::Tensor empty_host_from_pool(int64_t numel, at::ScalarType dtype, bool pin);

/// Locks the pages of [data, data + bytes) for copies to and from all devices. Call unlock_pages() before
/// they are freed, when no copy is under way (synchronize_used_devices()). Throws UsageError where the system
/// refuses, NotSupportedError in a build without CUDA.
void lock_pages(void* data, size_t bytes);
void unlock_pages(void* data) noexcept;

}  // namespace deepspeed::device
