// The arena is a process's memory that the other ranks on its machine can read. They read a tensor in the
// arena without a copy.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/comm/shm/memory.h"
#include "deepspeed/device/memory/addresses.h"
#include "deepspeed/device/memory/free_blocks.h"

namespace deepspeed::comm::shm {

/// Hands out blocks of one sparse memory file. Thread-safe.
class Arena {
 public:
  /// Reserves at most `most_bytes` of addresses, fewer if a limit of the process requires it. `page` is the
  /// system's page size or a multiple of it. Throws CommError if even 64 MiB of addresses are refused.
  explicit Arena(size_t most_bytes, size_t page = device::page_bytes());
  /// Returns the process's arena, which the first call makes. It reserves as many addresses as the machine
  /// has memory. Throws CommError.
  static std::shared_ptr<Arena> of_process();

  /// Returns whether set_shared() was called, that is, whether peers map this process's arena.
  static bool is_shared();
  static void set_shared();

  /// Returns a block of at least `bytes` whose pages are allocated. Returns null if memory or addresses run
  /// out, or if this process is a child of the one that made the arena.
  void* allocate(size_t bytes);
  /// Frees a block of allocate(); null is ignored. Up to 256 MiB of pages are kept for later blocks.
  void free(void* block);

  /// Returns the byte offset of `data` in the arena; nothing unless all `bytes` lie there.
  std::optional<size_t> offset_of(const void* data, size_t bytes) const;
  const Descriptor& memory() const { return memory_; }
  size_t bytes() const { return mapping_->bytes(); }
  /// Returns the total size of the blocks in use, in bytes of whole pages.
  size_t used_bytes() const;

 private:
  /// Turns free addresses into a free block of `bytes` with pages, and returns it. A large block starts at a
  /// huge page. Returns end() if memory or addresses run out.
  device::FreeBlocks::iterator add_block(size_t bytes);

  const size_t page_;
  Descriptor memory_;
  std::shared_ptr<Mapping> mapping_;
  int process_;
  mutable std::mutex mutex_;
  device::FreeBlocks free_;
  std::map<size_t, size_t> used_;  // bytes by offset
  size_t kept_bytes_ = 0;          // total size of the free blocks that have pages
};

}  // namespace deepspeed::comm::shm
