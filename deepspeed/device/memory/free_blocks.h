// Tracks the free parts of a memory range that is handed out in blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace deepspeed::device {

struct FreeBlock {
  size_t bytes;
  bool has_pages;      // false: bare addresses
  uint64_t freed = 0;  // larger: freed later
};
using FreeBlocks = std::map<size_t, FreeBlock>;  // by offset

/// Adds a block, joined with neighbours of the same kind. The joined block counts as freed when the last of
/// them was. Returns its position.
FreeBlocks::iterator add_joined(FreeBlocks& blocks, size_t offset, FreeBlock block);
/// Returns the smallest block of the kind with at least this many bytes, or end().
FreeBlocks::iterator find_smallest(FreeBlocks& blocks, size_t bytes, bool has_pages);

}  // namespace deepspeed::device
