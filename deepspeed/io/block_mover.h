// This thread moves ranges of files in blocks, several of them under way.
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

/// Moves ranges in the order in which any threads start them, the blocks of one beside those of the next. The
/// destructor waits for all.
class BlockMover {
 public:
  BlockMover(const AsyncIoOptions& options, const std::vector<MemoryRegion>& memory);
  ~BlockMover();
  BlockMover(const BlockMover&) = delete;
  BlockMover& operator=(const BlockMover&) = delete;

  /// Starts a range. Its completion has the bytes of the whole range and the first error, after which no
  /// further block starts; or IoError, where the queue itself failed.
  std::future<Completion> start(const Transfer& range);

 private:
  struct Range {
    Transfer transfer;
    size_t started = 0;  // bytes whose blocks were started, or never will be
    size_t num_under_way = 0;
    Completion result;
    std::promise<Completion> promise;
  };
  using Ranges = std::list<Range>;

  void run();
  /// Waits until there is a range to move. Returns false where none is left, and none will come.
  bool take_in();
  void start_blocks();
  bool start_next_block();
  void absorb(const Completion& done);
  void fail_all(const std::exception_ptr& error);

  const size_t block_bytes_;
  const bool single_submit_;
  const bool overlap_events_;
  std::unique_ptr<TransferQueue> queue_;
  Ranges ranges_;  // used by the thread alone, like all up to here
  struct Slot {
    Ranges::iterator range;
    size_t size = 0;
  };
  std::vector<Slot> slots_;  // of blocks under way, by id
  std::vector<size_t> free_slots_;

  std::mutex mutex_;
  std::condition_variable arrived_;
  Ranges inbox_;
  bool stopped_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // declared last: it uses the other members
};

}  // namespace deepspeed::io
