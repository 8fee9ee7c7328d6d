// What is free of a range of memory that is handed out in blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace deepspeed::device {

struct FreeBlock {
  size_t bytes;
  bool has_pages;      // else it is mere addresses
  uint64_t freed = 0;  // greater: given back later
};
using FreeBlocks = std::map<size_t, FreeBlock>;  // by offset

/// Adds a block, joined with its neighbours of the same kind; the joined one counts as given back when the
/// last of them was. Returns where it stands.
FreeBlocks::iterator add_joined(FreeBlocks& blocks, size_t offset, FreeBlock block);
/// Returns the smallest block of the kind that has so many bytes, else end().
FreeBlocks::iterator find_smallest(FreeBlocks& blocks, size_t bytes, bool has_pages);

}  // namespace deepspeed::device
