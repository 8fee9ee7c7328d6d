#include "deepspeed/device/memory/free_blocks.h"

#include <algorithm>
#include <iterator>

namespace deepspeed::device {

FreeBlocks::iterator add_joined(FreeBlocks& blocks, size_t offset, FreeBlock block) {
  const auto next = blocks.find(offset + block.bytes);
  if (next != blocks.end() && next->second.has_pages == block.has_pages) {
    block.bytes += next->second.bytes;
    block.freed = std::max(block.freed, next->second.freed);
    blocks.erase(next);
  }
  const auto after = blocks.lower_bound(offset);
  if (after != blocks.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.bytes == offset && before->second.has_pages == block.has_pages) {
      before->second.bytes += block.bytes;
      before->second.freed = std::max(before->second.freed, block.freed);
      return before;
    }
  }
  return blocks.insert_or_assign(offset, block).first;
}

FreeBlocks::iterator find_smallest(FreeBlocks& blocks, size_t bytes, bool has_pages) {
  auto smallest = blocks.end();
  for (auto it = blocks.begin(); it != blocks.end(); ++it) {
    if (it->second.has_pages != has_pages || it->second.bytes < bytes) continue;
    if (smallest == blocks.end() || it->second.bytes < smallest->second.bytes) smallest = it;
  }
  return smallest;
}

}  // namespace deepspeed::device
