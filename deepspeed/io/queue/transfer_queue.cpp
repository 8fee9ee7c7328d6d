#include "deepspeed/io/queue/transfer_queue.h"

namespace deepspeed::io {

std::unique_ptr<TransferQueue> make_transfer_queue(size_t depth, const std::vector<MemoryRegion>& memory) {
  auto queue = make_uring_queue(depth, memory);
  return queue ? std::move(queue) : make_thread_queue(depth);
}

}  // namespace deepspeed::io
