#include "deepspeed/io/queue/transfer_queue.h"

#include <mutex>

#include "deepspeed/base/log.h"

namespace deepspeed::io {

std::unique_ptr<TransferQueue> make_transfer_queue(size_t depth, const std::vector<MemoryRegion>& memory) {
  auto queue = make_uring_queue(depth, memory);
  if (queue) return queue;
  static std::once_flag once;
  std::call_once(once, [] {
    const std::string why = why_no_uring();  // empty if only a ring of this depth is refused
    log::info("[io.transfer_queue] threads read and write files instead of io_uring", why.empty() ? "" : ": ",
              why);
  });
  return make_thread_queue(depth);
}

}  // namespace deepspeed::io
