#include "deepspeed/comm/making/buffer.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "deepspeed/comm/backends/shm/arena_tensor.h"
#include "deepspeed/comm/shm/arena.h"

namespace deepspeed::comm {
namespace {

// Smaller tensors gain little, and up to 16 KiB are copied for the peers anyway (shm/collectives.cpp).
constexpr int64_t kLeastSharedBytes = 64 << 10;

}  // namespace

at::Tensor buffer(int64_t numel, const at::TensorOptions& options) {
  const bool is_shared = options.device().is_cpu() && !options.pinned_memory() &&
                         numel * static_cast<int64_t>(options.dtype().itemsize()) >= kLeastSharedBytes &&
                         shm::Arena::is_shared();
  if (is_shared) {
    const auto made = empty_in_arena(numel, c10::typeMetaToScalarType(options.dtype()));
    if (made.defined()) return made;
  }
  return at::empty({numel}, options);
}

int64_t shared_buffer_bytes() {
  return shm::Arena::is_shared() ? static_cast<int64_t>(shm::Arena::of_process()->used_bytes()) : 0;
}

at::Tensor zero_buffer(int64_t numel, const at::TensorOptions& options) {
  const c10::NoGradGuard no_grad;
  return buffer(numel, options).zero_();
}

}  // namespace deepspeed::comm
