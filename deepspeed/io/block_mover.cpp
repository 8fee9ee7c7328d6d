#include "deepspeed/io/block_mover.h"

#include <algorithm>

namespace deepspeed::io {

BlockMover::BlockMover(const AsyncIoOptions& options, const std::vector<MemoryRegion>& memory)
    : block_bytes_(options.block_bytes),
      single_submit_(options.single_submit),
      overlap_events_(options.overlap_events),
      queue_(make_transfer_queue(options.queue_depth, memory)),
      slots_(options.queue_depth),
      thread_([this] { run(); }) {}

BlockMover::~BlockMover() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  arrived_.notify_all();
  thread_.join();
}

std::future<Completion> BlockMover::start(const Transfer& range) {
  Ranges arriving(1);
  arriving.front().transfer = range;
  std::promise<Completion>& promise = arriving.front().promise;
  std::future<Completion> done = promise.get_future();
  const std::lock_guard lock(mutex_);
  if (failure_) {
    promise.set_exception(failure_);
  } else if (range.size == 0) {
    promise.set_value({});
  } else {
    inbox_.splice(inbox_.end(), arriving);
  }
  arrived_.notify_all();
  return done;
}

void BlockMover::run() {
  for (size_t slot = 0; slot < slots_.size(); ++slot) free_slots_.push_back(slot);
  try {
    while (take_in()) {
      start_blocks();
      if (queue_->num_under_way() > 0) absorb(queue_->wait());
    }
  } catch (...) {
    fail_all(std::current_exception());
  }
}

bool BlockMover::take_in() {
  std::unique_lock lock(mutex_);
  if (ranges_.empty()) arrived_.wait(lock, [&] { return stopped_ || !inbox_.empty(); });
  // Splicing does not move ranges in memory, so the iterators in slots_ stay valid.
  ranges_.splice(ranges_.end(), inbox_);
  return !ranges_.empty();
}

void BlockMover::start_blocks() {
  if (!overlap_events_ && queue_->num_under_way() > 0) return;
  while (!free_slots_.empty() && start_next_block()) {
    if (single_submit_) queue_->submit();
  }
  queue_->submit();
}

bool BlockMover::start_next_block() {
  const auto range = std::find_if(ranges_.begin(), ranges_.end(), [](const Range& candidate) {
    return candidate.started < candidate.transfer.size;
  });
  if (range == ranges_.end()) return false;
  Transfer block = range->transfer;
  block.data += range->started;
  block.offset += range->started;
  block.size = std::min(block_bytes_, block.size - range->started);
  block.id = free_slots_.back();
  free_slots_.pop_back();
  slots_[block.id] = {range, block.size};
  queue_->add(block);
  range->started += block.size;
  ++range->num_under_way;
  return true;
}

void BlockMover::absorb(const Completion& done) {
  const auto [range, size] = slots_[done.id];
  free_slots_.push_back(done.id);
  range->result.bytes += done.bytes;
  if (range->result.error == 0) range->result.error = done.error;
  // Nothing more is tried after the end of the file or an error.
  if (done.bytes < size) range->started = range->transfer.size;
  if (--range->num_under_way > 0 || range->started < range->transfer.size) return;
  range->promise.set_value(range->result);
  ranges_.erase(range);
}

void BlockMover::fail_all(const std::exception_ptr& error) {
  queue_.reset();  // ends transfers in progress
  const std::lock_guard lock(mutex_);
  failure_ = error;
  ranges_.splice(ranges_.end(), inbox_);
  for (Range& range : ranges_) range.promise.set_exception(error);
  ranges_.clear();
}

}  // namespace deepspeed::io
