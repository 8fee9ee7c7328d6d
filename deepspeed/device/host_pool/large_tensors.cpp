#include "deepspeed/device/host_pool/large_tensors.h"

#include <cstring>
#include <mutex>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <sys/resource.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/device/host_pool/block_pool.h"

namespace deepspeed::device {
namespace {

constexpr size_t kMostKeptInPool = size_t{64} << 20;

c10::DeleterFnPtr small_deleter = nullptr;  // deleter of the original allocator

void free_tensor_memory(void* data) {
  BlockPool& pool = large_block_pool();
  if (!pool.contains(data)) return small_deleter(data);
  c10::profiledCPUMemoryReporter().Delete(data);
  pool.free(data);
}

class LargeTensorAllocator final : public c10::Allocator {
 public:
  explicit LargeTensorAllocator(c10::Allocator& small) : small_(small) {}

  c10::DataPtr allocate(size_t bytes) override {
    void* const data = bytes >= kLeastPooled ? large_block_pool().allocate(bytes) : nullptr;
    if (data != nullptr) {
      c10::profiledCPUMemoryReporter().New(data, bytes);
      return {data, data, &free_tensor_memory, at::kCPU};
    }
    // One deleter frees everything allocated here, as raw_deleter() promises.
    c10::DataPtr small = small_.allocate(bytes);
    static_cast<void>(small.compare_exchange_deleter(small_deleter, &free_tensor_memory));
    return small;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_tensor_memory; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

 private:
  c10::Allocator& small_;
};

bool wants_pool() {
  const auto value = env::get_int("DEEPSPEED_TENSOR_POOL").value_or(1);
  if (value == 0 || value == 1) return value == 1;
  raise<UsageError>("the variable DEEPSPEED_TENSOR_POOL is ", value,
                    ", expected 1 (large tensors of the CPU lie in a pool) or 0 (in malloc's heap)");
}

// Under a limit, each page that the pool keeps would be missing elsewhere.
bool is_limited(int resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

void install_large_tensor_pool() {
  if (!wants_pool() || is_limited(RLIMIT_AS) || is_limited(RLIMIT_DATA)) return;
  c10::Allocator& small = *c10::GetCPUAllocator();
  small_deleter = small.raw_deleter();
  if (small_deleter == nullptr) return;
  c10::SetCPUAllocator(new LargeTensorAllocator(small));
}

}  // namespace

// Tensors may outlive statics, so the pool and the allocator stay until the process ends.
BlockPool& large_block_pool() {
  // Gaps between blocks are only addresses, so the range is larger than the machine's memory.
  static auto& pool =
      *new BlockPool(4 * static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * page_bytes(), kMostKeptInPool);
  return pool;
}

void pool_large_tensors() {
  static std::once_flag once;
  std::call_once(once, install_large_tensor_pool);
}

}  // namespace deepspeed::device
