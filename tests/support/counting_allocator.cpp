#include "tests/support/counting_allocator.h"

#include <atomic>
#include <new>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

namespace deepspeed::testing {
namespace {

// Before the memory that is given out, whose address alone comes back: some operators allocate by
// raw_allocate().
struct Block {
  at::DataPtr memory;
  int64_t bytes;
};
constexpr size_t kHeaderBytes = 64;  // keeps the alignment
static_assert(sizeof(Block) <= kHeaderBytes);

std::atomic<int64_t> live{0};
std::atomic<int64_t> peak{0};

void release(void* data) {
  auto* const block = reinterpret_cast<Block*>(static_cast<char*>(data) - kHeaderBytes);
  live -= block->bytes;
  const at::DataPtr memory = std::move(block->memory);
  block->~Block();
}

class Counting : public c10::Allocator {
 public:
  explicit Counting(c10::Allocator* base) : base_(base) {}

  at::DataPtr allocate(size_t bytes) override {
    at::DataPtr memory = base_->allocate(bytes + kHeaderBytes);
    const at::Device device = memory.device();
    auto* const begin = static_cast<char*>(memory.get());
    new (begin) Block{std::move(memory), static_cast<int64_t>(bytes)};
    const int64_t now = live += static_cast<int64_t>(bytes);
    for (int64_t most = peak; now > most && !peak.compare_exchange_weak(most, now);) continue;
    void* const data = begin + kHeaderBytes;
    return {data, data, &release, device};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    base_->copy_data(to, from, bytes);
  }

 private:
  c10::Allocator* base_;
};

c10::Allocator* replaced = nullptr;

}  // namespace

AllocationCounter::AllocationCounter() {
  replaced = c10::GetCPUAllocator();
  static Counting counting(replaced);
  live = 0;
  peak = 0;
  c10::SetCPUAllocator(&counting, 1);
}

AllocationCounter::~AllocationCounter() { c10::SetCPUAllocator(replaced, 1); }

int64_t AllocationCounter::live_bytes() const { return live; }
int64_t AllocationCounter::peak_bytes() const { return peak; }

}  // namespace deepspeed::testing
