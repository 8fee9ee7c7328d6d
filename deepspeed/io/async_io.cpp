#include "deepspeed/io/async_io.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/io/block_mover.h"

namespace deepspeed::io {
AsyncIo::AsyncIo(const AsyncIoOptions& options, const std::vector<MemoryRegion>& memory) : options_(options) {
  if (options.block_bytes == 0 || options.block_bytes % kDirectAlignment != 0) {
    raise<UsageError>("block_size is ", options.block_bytes, ", expected a multiple of ", kDirectAlignment);
  }
  if (options.queue_depth == 0 || options.num_threads == 0) {
    raise<UsageError>("queue_depth is ", options.queue_depth, ", intra_op_parallelism ", options.num_threads,
                      ", expected at least 1 of each");
  }
  for (size_t thread = 0; thread < options.num_threads; ++thread)
    movers_.push_back(std::make_unique<BlockMover>(options, memory));
}

AsyncIo::~AsyncIo() = default;

uint64_t AsyncIo::start(const Transfer& transfer) {
  std::vector<std::future<Completion>> parts;
  const size_t part_bytes = align_up((transfer.size + movers_.size() - 1) / movers_.size());
  for (size_t begin = 0, thread = 0; begin < transfer.size; begin += part_bytes, ++thread) {
    Transfer part = transfer;
    part.data += begin;
    part.offset += begin;
    part.size = std::min(part_bytes, transfer.size - begin);
    parts.push_back(movers_[thread]->start(part));
  }
  under_way_.emplace(++num_started_, std::move(parts));
  return num_started_;
}

Completion AsyncIo::wait(uint64_t ticket) {
  const auto found = under_way_.find(ticket);
  if (found == under_way_.end()) raise<UsageError>("no transfer with the ticket ", ticket, " is under way");
  auto parts = std::move(found->second);
  under_way_.erase(found);
  Completion all{.id = ticket};
  // Waits for all parts even after an error, because the kernel uses the memory until each part is done.
  for (std::future<Completion>& part : parts) part.wait();
  for (std::future<Completion>& part : parts) {
    const Completion done = part.get();
    all.bytes += done.bytes;
    if (all.error == 0) all.error = done.error;
  }
  return all;
}

}  // namespace deepspeed::io
