#include <string>

#include "deepspeed/device/accelerator/cuda_library.h"

#include "tests/simulated_cuda/device/memory.h"
#include "tests/simulated_cuda/device/streams.h"
#include "tests/simulated_cuda/tables/tables.h"

namespace deepspeed::simulated {
namespace {

const char* lock(void* data, size_t bytes) {
  note_use(current_device(), "lock_pages()");
  pin(data, bytes);
  return nullptr;
}

void unlock(void* data) {
  note_use(current_device(), "unlock_pages()");
  unpin(data);
}

const void* find(const char* name) {
  const std::string asked = name;
  if (asked == device::PageLocks::kName) return &page_locks;
  if (asked == device::CudaGraphs::kName) return &cuda_graphs;
  if (asked == kernels::CudaKernels::kName) return &cuda_kernels;
  if (asked == comm::NcclBackends::kName) return &nccl_backends;
  return nullptr;
}

// Before the engine's globals, which would load the real library on a machine with a driver.
[[gnu::constructor(101)]] void use_simulated_device() { device::use_cuda_tables(&find); }

}  // namespace

const device::PageLocks page_locks{.lock = &lock, .unlock = &unlock};

}  // namespace deepspeed::simulated
