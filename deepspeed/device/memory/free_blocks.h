// Tracks the free parts of a memory range that is handed out in blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace deepspeed::device {

struct FreeBlock {
  size_t bytes;
  bool has_pages;      // false: reserved addresses without memory
  uint64_t freed = 0;  // larger: freed later
};
using FreeBlocks = std::map<size_t, FreeBlock>;  // by offset

/// Adds a free block at `offset`, joined with neighbours of equal has_pages. The joined block counts as freed
/// when the last of its parts was. Returns its entry in `blocks`.
FreeBlocks::iterator add_joined(FreeBlocks& blocks, size_t offset, FreeBlock block);
/// Returns the smallest block of at least `bytes` bytes, or end(). Considers only blocks whose has_pages
/// equals `has_pages`.
FreeBlocks::iterator find_smallest(FreeBlocks& blocks, size_t bytes, bool has_pages);

}  // namespace deepspeed::device
