// A pool for large blocks of short-lived memory. Freed neighbours join, so that blocks of other sizes fit
// there. Memory that one range of addresses no longer needs is moved to another range.
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

/// Hands out memory blocks from one range of addresses, in huge pages if available (madvise). Thread-safe.
class BlockPool {
 public:
  /// Reserves `addresses` bytes of address space, or less if the system refuses that much. They take no
  /// memory until they are written. most_kept: the most bytes of unused memory that the pool keeps.
  BlockPool(size_t addresses, size_t most_kept);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// Returns an uninitialised block at a multiple of 64 KiB. Returns null if the pool or the system has no
  /// more, and in a child of the process that made the pool.
  void* allocate(size_t bytes);
  /// Takes back a block of allocate(). Returns false, and does nothing, if it is not one.
  bool free(void* block);

  /// Lends the memory of the huge pages within the range to other blocks. Their values are lost. Writing to
  /// these pages before fetch() takes new memory. Does nothing outside a block in use.
  void lend(void* data, size_t bytes);
  /// Gives memory back to the huge pages that the range touches. They get what the pool has; the rest get new
  /// memory when they are written. Values not written since lend() are undefined.
  void fetch(void* data, size_t bytes);

  bool contains(const void* data) const;
  size_t used_bytes() const;
  /// Returns the bytes of memory in free blocks and in the stock (PageStock).
  size_t kept_bytes() const;
  size_t lent_bytes() const;

 private:
  bool add_pages(size_t offset, size_t bytes);
  /// Moves whole huge pages to the stock, from the free block that was freed first. It takes at least
  /// `wanted` bytes if the block has them. The pages keep only their addresses. Returns false if no free
  /// block has a whole huge page.
  bool empty_oldest(size_t wanted);
  /// Fills the stock to this many bytes from the free blocks. Moving free memory costs the system a hundredth
  /// of what new memory costs.
  void stock_up(size_t bytes);
  bool moves_pages() const;
  /// Returns memory to the system if more is kept than allowed. As many bytes as are lent may be kept in
  /// addition.
  void trim();
  /// Moves the memory of whole huge pages, at `offset` in the pool, to the stock. If the pool is very large,
  /// the memory goes to the system instead.
  void take_memory_of(size_t offset, size_t bytes);
  bool is_usable() const;
  /// Returns whether the huge page at offset `page` was accessed since it lost its memory. Returns true if
  /// this is unknown.
  bool has_memory(size_t page) const;

  Addresses addresses_;
  size_t most_kept_;
  pid_t process_;
  mutable std::mutex mutex_;
  PageStock stock_;
  int page_table_;  // /proc/self/pagemap; negative: it cannot be read
  FreeBlocks free_;
  std::map<size_t, size_t> used_;  // bytes by offset
  std::set<size_t> lent_;          // offsets of huge pages in blocks in use
  size_t used_bytes_ = 0;
  size_t kept_bytes_ = 0;  // in free blocks
  uint64_t num_freed_ = 0;
};

}  // namespace deepspeed::device
