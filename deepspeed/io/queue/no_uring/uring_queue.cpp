// Of a build without liburing.
#include "deepspeed/io/queue/transfer_queue.h"

namespace deepspeed::io {

std::unique_ptr<TransferQueue> make_uring_queue(size_t /*depth*/,
                                                const std::vector<MemoryRegion>& /*memory*/) {
  return nullptr;
}

}  // namespace deepspeed::io
