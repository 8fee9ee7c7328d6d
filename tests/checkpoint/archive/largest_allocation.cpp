#include "tests/checkpoint/archive/largest_allocation.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include <malloc.h>

namespace deepspeed::testing {
namespace {

std::atomic<bool> watches_allocations = false;
std::atomic<size_t> largest_allocation = 0;
std::atomic<size_t> held_bytes = 0;
std::atomic<size_t> most_held_bytes = 0;

void* take_memory(size_t bytes) {
  for (size_t most = largest_allocation;
       watches_allocations && bytes > most && !largest_allocation.compare_exchange_weak(most, bytes);)
    continue;
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  const size_t held = held_bytes += ::malloc_usable_size(memory);
  for (size_t most = most_held_bytes; held > most && !most_held_bytes.compare_exchange_weak(most, held);)
    continue;
  return memory;
}

void give_memory(void* memory) {
  held_bytes -= ::malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

LargestAllocation::LargestAllocation() : held_before_(held_bytes) {
  most_held_bytes = held_before_;
  largest_allocation = 0;
  watches_allocations = true;
}

LargestAllocation::~LargestAllocation() { watches_allocations = false; }

size_t LargestAllocation::bytes() const { return largest_allocation; }

size_t LargestAllocation::peak_bytes() const { return most_held_bytes - held_before_; }

}  // namespace deepspeed::testing

void* operator new(size_t bytes) { return deepspeed::testing::take_memory(bytes); }
void* operator new[](size_t bytes) { return deepspeed::testing::take_memory(bytes); }
void operator delete(void* memory) noexcept { deepspeed::testing::give_memory(memory); }
void operator delete[](void* memory) noexcept { deepspeed::testing::give_memory(memory); }
void operator delete(void* memory, size_t) noexcept { deepspeed::testing::give_memory(memory); }
void operator delete[](void* memory, size_t) noexcept { deepspeed::testing::give_memory(memory); }
