#include "deepspeed/io/transfer_queue.h"

namespace deepspeed::io {

std::unique_ptr<TransferQueue> make_transfer_queue(size_t depth) {
  auto queue = make_uring_queue(depth);
  return queue ? std::move(queue) : make_thread_queue(depth);
}

}  // namespace deepspeed::io
