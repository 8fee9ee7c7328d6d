// Memory for large blocks that come and go: freed neighbours join, so that blocks of other sizes fit where
// they were, and memory that one place does not need any more serves another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include <sys/types.h>

#include "deepspeed/device/host_pool/page_stock.h"
#include "deepspeed/device/memory/addresses.h"
#include "deepspeed/device/memory/free_blocks.h"

namespace deepspeed::device {

/// Hands out blocks of one range of addresses, in huge pages where the system has them (madvise). Any thread
/// may call.
class BlockPool {
 public:
  /// Reserves addresses, fewer where the system has not as many; they are no memory until they are used.
  /// most_kept: bytes of memory that stay with the pool although nothing uses them.
  BlockPool(size_t addresses, size_t most_kept);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// Returns a block whose bytes have any values, at a multiple of 64 KiB. Null where the pool or the system
  /// has no more, and in a child of the process that made the pool.
  void* allocate(size_t bytes);
  /// Takes back what allocate() returned. Returns false, and does nothing, where it is no block of the pool.
  bool free(void* block);

  /// Lends the memory of the huge pages within the range to other blocks: its values are gone, and what is
  /// written there before fetch() takes new memory. Does nothing outside of a block that is in use.
  void lend(void* data, size_t bytes);
  /// Gives the huge pages that the range touches memory again, with any values where nothing was written
  /// since lend(), as far as the pool keeps some; the rest is new memory when it is written.
  void fetch(void* data, size_t bytes);

  bool contains(const void* data) const;
  size_t used_bytes() const;
  /// Bytes of memory that nothing uses.
  size_t kept_bytes() const;
  size_t lent_bytes() const;

 private:
  bool add_pages(size_t offset, size_t bytes);
  /// Makes mere addresses of whole huge pages, of so many bytes at least where it has them, in the block that
  /// was freed first; their memory goes to the stock. Returns false where no block has any.
  bool empty_oldest(size_t wanted);
  /// Fills the stock up to so many bytes from the free blocks: what is free serves before new memory does,
  /// which costs the system a hundred times as long as to move it.
  void stock_up(size_t bytes);
  bool moves_pages() const;
  /// Gives memory back to the system where more is kept than may be. What is lent may be kept beyond that.
  void trim();
  /// Gives the memory of whole huge pages to the stock, or to the system where the pool is very large.
  void take_memory_of(size_t offset, size_t bytes);
  bool is_usable() const;
  /// Whether anything was written or read in the huge page since it lost its memory; true where nobody knows.
  bool has_memory(size_t page) const;

  Addresses addresses_;
  size_t most_kept_;
  pid_t process_;
  mutable std::mutex mutex_;
  PageStock stock_;
  int page_table_;  // a file of the system; negative: not to be read
  FreeBlocks free_;
  std::map<size_t, size_t> used_;  // bytes by offset
  std::set<size_t> lent_;          // offsets of huge pages in blocks that are in use
  size_t used_bytes_ = 0;
  size_t kept_bytes_ = 0;  // in free blocks
  uint64_t num_freed_ = 0;
};

}  // namespace deepspeed::device
