#include "deepspeed/zero/shards/shard.h"

#include <utility>

namespace deepspeed::zero {

MemoryShard::MemoryShard(at::Tensor memory, bool is_pinned)
    : Shard(memory.numel(), memory.scalar_type()), memory_(std::move(memory)), is_pinned_(is_pinned) {}

void MemoryShard::read(const at::Tensor& values) {
  values.copy_(memory_, /*non_blocking=*/is_pinned_);
  if (is_pinned_) reads_.note(values.device());
}

void MemoryShard::write(const at::Tensor& values) {
  wait_for_reads();
  memory_.narrow(0, 0, values.numel()).copy_(values);
}

}  // namespace deepspeed::zero
