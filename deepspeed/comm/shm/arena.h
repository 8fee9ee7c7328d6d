// The arena is the memory of a process that the other ranks of its machine can read: a tensor that lies in it
// needs no copy to reach them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "deepspeed/comm/shm/descriptor.h"
#include "deepspeed/comm/shm/memory.h"
#include "deepspeed/device/memory/addresses.h"
#include "deepspeed/device/memory/free_blocks.h"

namespace deepspeed::comm::shm {

/// Hands out blocks of one sparse memory. Any thread may call.
class Arena {
 public:
  /// Reserves addresses, at most `most_bytes` of them and fewer where a limit of the process asks for it.
  /// `page`: of the system, or a multiple of it. Throws CommError where not even a few are to be had.
  explicit Arena(size_t most_bytes, size_t page = device::page_bytes());
  /// Returns that of the process, which is made with the first call and reserves as many addresses as the
  /// machine has memory. Throws CommError.
  static std::shared_ptr<Arena> of_process();

  /// Says whether peers of this process map its arena, and notes that they do.
  static bool is_shared();
  static void set_shared();

  /// Returns a block of pages that exist, or null: no memory or addresses are left, or this process is a
  /// child of the one that made the arena.
  void* allocate(size_t bytes);
  /// Takes a block of allocate() back. Its pages are kept for the next ones, up to a limit.
  void free(void* block);

  /// Returns where the bytes lie in the arena; nothing where they do not.
  std::optional<size_t> offset_of(const void* data, size_t bytes) const;
  const Descriptor& memory() const { return memory_; }
  size_t bytes() const { return mapping_->bytes(); }
  /// Returns the bytes of the blocks that are in use, whole pages.
  size_t used_bytes() const;

 private:
  /// Makes a free block with pages of mere addresses, from a huge page on where it is large. Returns it;
  /// end() where no memory or addresses are left.
  device::FreeBlocks::iterator add_block(size_t bytes);

  const size_t page_;
  Descriptor memory_;
  std::shared_ptr<Mapping> mapping_;
  int process_;
  mutable std::mutex mutex_;
  device::FreeBlocks free_;
  std::map<size_t, size_t> used_;  // bytes by offset
  size_t kept_bytes_ = 0;          // of the free blocks that have pages
};

}  // namespace deepspeed::comm::shm
