#include "tests/checkpoint/archive/largest_allocation.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace deepspeed::testing {
namespace {

std::atomic<bool> watches_allocations = false;
std::atomic<size_t> largest_allocation = 0;

void* take_memory(size_t bytes) {
  for (size_t most = largest_allocation;
       watches_allocations && bytes > most && !largest_allocation.compare_exchange_weak(most, bytes);)
    continue;
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

LargestAllocation::LargestAllocation() {
  largest_allocation = 0;
  watches_allocations = true;
}

LargestAllocation::~LargestAllocation() { watches_allocations = false; }

size_t LargestAllocation::bytes() const { return largest_allocation; }

}  // namespace deepspeed::testing

void* operator new(size_t bytes) { return deepspeed::testing::take_memory(bytes); }
void* operator new[](size_t bytes) { return deepspeed::testing::take_memory(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
