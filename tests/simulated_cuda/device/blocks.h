// Blocks of memory and their uses by streams. Internal to this folder; all of it wants the device's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "tests/simulated_cuda/device/stack.h"

namespace deepspeed::simulated {

struct Access {
  size_t stream;
  uint64_t tick;
  size_t begin, end;  // bytes in the block
  bool writes;
  const char* name;
  Stack stack;
};

struct GraphPool;

struct Block {
  char* address = nullptr;
  char* bytes = nullptr;  // where they lie; of host memory the address itself
  size_t size = 0;
  size_t home = 0;  // the stream on which it was allocated
  int device = -1;  // -1: page-locked memory of the host
  std::vector<Access> accesses;
  std::set<size_t> recorded;  // streams that the allocator waits for
  Stack allocation;
  std::weak_ptr<GraphPool> pool;  // of the graph that made it; expired: none
};

void add_block(std::unique_ptr<Block> block);
/// Returns the block that holds an address, nullptr where there is none.
Block* block_at(const void* data);
std::unique_ptr<Block> take_block(const void* begin);
void for_each_block(const std::function<void(Block&)>& visit);

/// Whether an access is ordered before what a stream does next.
bool is_ordered(const Access& access, size_t stream);
/// Returns "NAME on STREAM writes".
std::string text_of(const Access& access);

}  // namespace deepspeed::simulated
