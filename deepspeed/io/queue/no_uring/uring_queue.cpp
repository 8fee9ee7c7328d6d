// Replaces uring/ in a build without liburing: there is no such queue.
#include "deepspeed/io/queue/transfer_queue.h"

namespace deepspeed::io {

std::unique_ptr<TransferQueue> make_uring_queue(size_t /*depth*/,
                                                const std::vector<MemoryRegion>& /*memory*/) {
  return nullptr;
}

std::string why_no_uring() { return "it is not in this build, which found no liburing of 2.2 or later"; }

}  // namespace deepspeed::io
