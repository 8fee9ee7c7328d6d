// Moves ranges of files on a thread, in blocks of which several are in progress.
#pragma once

#include <condition_variable>
#include <future>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "deepspeed/io/async_io.h"
#include "deepspeed/io/queue/transfer_queue.h"

namespace deepspeed::io {

/// Moves ranges in the order of start() calls, from any thread. The next range may begin before one ends. The
/// destructor waits for all ranges.
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
  /// Takes in new ranges, waiting if there is none to move. Returns false when the mover ends.
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

}  // namespace deepspeed::io
