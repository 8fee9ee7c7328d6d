#include "tests/support/counting_allocator.h"

#include <atomic>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

namespace deepspeed::testing {
namespace {

struct Block {
  at::DataPtr memory;
  int64_t bytes;
};

std::atomic<int64_t> live{0};
std::atomic<int64_t> peak{0};

void release(void* context) {
  auto* const block = static_cast<Block*>(context);
  live -= block->bytes;
  delete block;
}

class Counting : public c10::Allocator {
 public:
  explicit Counting(c10::Allocator* base) : base_(base) {}

  at::DataPtr allocate(size_t bytes) override {
    auto* const block = new Block{base_->allocate(bytes), static_cast<int64_t>(bytes)};
    const int64_t now = live += block->bytes;
    for (int64_t most = peak; now > most && !peak.compare_exchange_weak(most, now);) continue;
    return {block->memory.get(), block, &release, block->memory.device()};
  }
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
