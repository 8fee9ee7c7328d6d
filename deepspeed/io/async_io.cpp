// Moves ranges of files in blocks, on threads of their own.
//
// start() cuts a range into a part per thread and gives each BlockMover its part. A mover's thread takes in
// the parts that have arrived (take_in()). It starts their blocks in order, as many at once as its queue
// holds (start_blocks()). absorb() counts each completed block, and completes a part after its last one.
// wait() adds up what the parts of a range have moved.
#include "deepspeed/io/async_io.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <thread>

#include "deepspeed/base/error.h"

namespace deepspeed::io {

/// Moves ranges in the order of start() calls, from any thread. The next range may begin before the previous
/// one ends. The destructor waits for all ranges.
class BlockMover {
 public:
  BlockMover(const AsyncIoOptions& options, const std::vector<MemoryRegion>& memory);
  ~BlockMover();
  BlockMover(const BlockMover&) = delete;
  BlockMover& operator=(const BlockMover&) = delete;

  /// Starts a range. The completion has the bytes of the whole range and the first error, after which no more
  /// blocks start. If the queue itself fails, the future throws IoError.
  std::future<Completion> start(const Transfer& range);

 private:
  struct Range {
    Transfer transfer;
    size_t started = 0;  // bytes whose blocks were started; all once it has failed or the file has ended
    size_t num_under_way = 0;
    Completion result;
    std::promise<Completion> promise;
  };
  using Ranges = std::list<Range>;

  void run();
  /// Takes in new ranges from inbox_, waiting if there is none to move. Returns false when the mover ends.
  bool take_in();
  void start_blocks();
  bool start_next_block();
  void absorb(const Completion& done);
  void fail_all(const std::exception_ptr& error);

  const size_t block_bytes_;
  const bool single_submit_;
  const bool overlap_events_;
  std::unique_ptr<TransferQueue> queue_;
  Ranges ranges_;  // like all members above, used only by the thread
  struct Slot {
    Ranges::iterator range;
    size_t size = 0;
  };
  std::vector<Slot> slots_;  // of blocks in progress, by id
  std::vector<size_t> free_slots_;

  std::mutex mutex_;
  std::condition_variable arrived_;
  Ranges inbox_;
  bool stopped_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // declared last because it uses the other members
};

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
