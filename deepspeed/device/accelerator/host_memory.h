// Host memory that a device copies to and from.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace deepspeed::device {

/// (numel) in host memory that lives long; page-locked where `pin` asks for that and the process uses CUDA,
/// and then no larger than its pages: torch's pool of page-locked memory rounds up to powers of two. Throws
/// UsageError where the system locks no more memory.
at::Tensor empty_host(int64_t numel, at::ScalarType dtype, bool pin);

/// The same for memory that comes and goes: from torch's pool, where locking its pages is paid for once.
at::Tensor empty_host_from_pool(int64_t numel, at::ScalarType dtype, bool pin);

/// Locks the pages of [data, data + bytes) for copies to and from all devices; unlock_pages() before they are
/// freed waits for the copies. Twins in cuda/ and no_cuda/. Throws UsageError where the system refuses,
/// NotSupportedError in a build without CUDA.
void lock_pages(void* data, size_t bytes);
void unlock_pages(void* data) noexcept;

}  // namespace deepspeed::device
