#include "deepspeed/device/accelerator/host_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/ScalarType.h>

#include <sys/mman.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/cuda_library.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/page_locks.h"
#include "deepspeed/device/memory/addresses.h"

namespace deepspeed::device {
namespace {

// Smaller blocks come from torch's pool: rounding up costs less than own pages and a driver call.
constexpr int64_t kLeastOwnBytes = 1 << 20;

/// Returns a device that the process has used, for CUDA calls on host memory. Returns nothing if the current
/// device has been used, or if none has. A thread starts on device 0, and a CUDA call there would create a
/// context.
std::optional<c10::Device> used_device() {
  const auto& hooks = at::detail::getCUDAHooks();
  std::optional<c10::Device> found;
  for (int index = num_cuda_devices() - 1; index >= 0; --index) {
    if (hooks.hasPrimaryContext(static_cast<c10::DeviceIndex>(index)))
      found.emplace(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
  }
  if (found && hooks.hasPrimaryContext(static_cast<c10::DeviceIndex>(current_cuda_device()))) return {};
  return found;
}

/// Gives pages their memory using all cores. The driver, which locks them, would use only one.
void populate(void* data, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  constexpr int kPopulate = MADV_POPULATE_WRITE;
#else
  constexpr int kPopulate = 23;  // headers before glibc 2.35 lack it
#endif
  constexpr size_t kLeast = size_t{32} << 20;  // per thread
  const size_t threads = std::clamp<size_t>(bytes / kLeast, 1, size_t(at::get_num_threads()));
  const size_t page = page_bytes(), share = (bytes / threads / page + 1) * page;
  const auto populate_share = [=](size_t begin) {
    // Kernels before 5.14 do not support this; there the driver does the work.
    ::madvise(static_cast<char*>(data) + begin, std::min(share, bytes - begin), kPopulate);
  };
  std::vector<std::jthread> others;
  for (size_t begin = share; begin < bytes; begin += share) others.emplace_back(populate_share, begin);
  populate_share(0);
}

/// Owns page-locked memory that belongs to one tensor.
class LockedPages {
 public:
  explicit LockedPages(size_t bytes) : bytes_(bytes) {
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
      raise<UsageError>("no ", bytes, " bytes of host memory: ", std::strerror(errno));
    }
    ::madvise(data_, bytes, MADV_HUGEPAGE);
    populate(data_, bytes);
    try {
      const c10::OptionalDeviceGuard guard(used_device());
      lock_pages(data_, bytes_);
    } catch (...) {
      ::munmap(data_, bytes_);
      throw;
    }
  }
  ~LockedPages() {
    synchronize_used_devices();  // any device may be copying from here, whatever this thread's current one is
    const c10::OptionalDeviceGuard guard(used_device());
    unlock_pages(data_);
    ::munmap(data_, bytes_);
  }
  LockedPages(const LockedPages&) = delete;
  LockedPages& operator=(const LockedPages&) = delete;

  void* data() const { return data_; }

 private:
  void* data_;
  size_t bytes_;
};

}  // namespace

at::Tensor empty_host(int64_t numel, at::ScalarType dtype, bool pin) {
  const int64_t bytes = numel * int64_t(c10::elementSize(dtype));
  if (!pin || bytes < kLeastOwnBytes || num_cuda_devices() == 0)
    return empty_host_from_pool(numel, dtype, pin);
  auto pages = std::make_shared<LockedPages>(size_t(bytes));
  void* const data = pages->data();
  return at::from_blob(
      data, {numel}, [pages = std::move(pages)](void*) mutable { pages.reset(); }, dtype);
}

at::Tensor empty_host_from_pool(int64_t numel, at::ScalarType dtype, bool pin) {
  const auto options = at::TensorOptions().dtype(dtype).device(at::kCPU);
  return at::empty({numel}, options.pinned_memory(pin && num_cuda_devices() > 0));
}

void lock_pages(void* data, size_t bytes) {
  const auto* const locks = cuda_table<PageLocks>();
  if (locks == nullptr) raise<NotSupportedError>("no pages can be locked: ", why_no_cuda());
  const char* const error = locks->lock(data, bytes);
  if (error == nullptr) return;
  raise<UsageError>("cannot page-lock ", bytes, " bytes of host memory: ", error,
                    "; set pin_memory to false in the sections offload_optimizer and offload_param");
}

void unlock_pages(void* data) noexcept {
  if (const auto* const locks = cuda_table<PageLocks>()) locks->unlock(data);
}

}  // namespace deepspeed::device
