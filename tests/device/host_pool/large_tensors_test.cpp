#include "deepspeed/device/host_pool/large_tensors.h"

#include <thread>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>

#include <gtest/gtest.h>

#include "deepspeed/device/accelerator/memory.h"
#include "deepspeed/device/host_pool/idle_memory.h"

namespace deepspeed::device {
namespace {

constexpr int64_t kMiFloats = int64_t{1} << 18;  // of 1 MiB

TEST(LargeTensors, KeepTheirValuesWhileOthersComeAndGoInAllThreads) {
  pool_large_tensors();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread] {
      const at::Tensor kept = at::full({3 * kMiFloats}, double(thread));
      for (int step = 1; step < 30; ++step) {
        const at::Tensor other = at::full({step % 7 * kMiFloats / 2 + 1}, 100.0);
        EXPECT_TRUE(other.eq(100.0).all().item<bool>());
      }
      EXPECT_TRUE(kept.eq(thread).all().item<bool>());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(LargeTensors, GrowAndAreFreedThroughTheAllocatorOfTorch) {
  pool_large_tensors();
  at::Tensor tensor = at::ones({kMiFloats / 8});  // of malloc's
  tensor.resize_({8 * kMiFloats});                // of the pool's
  EXPECT_EQ(tensor.narrow(0, 0, kMiFloats / 8).sum().item<double>(), double(kMiFloats / 8));
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  for (const size_t bytes : {size_t{16}, size_t{4} << 20}) {
    auto* const data = static_cast<char*>(allocator.raw_allocate(bytes));
    data[bytes - 1] = 1;
    allocator.raw_deallocate(data);
  }
}

TEST(LargeTensors, LeaveNoMemoryWithTheProcessWhenTheyGo) {
  pool_large_tensors();
  const int64_t before = resident_bytes();
  {
    std::vector<at::Tensor> tensors, others;
    for (int index = 0; index < 100; ++index) {
      tensors.push_back(at::ones({4 * kMiFloats}));
      others.push_back(at::ones({16}));  // small ones between them stay
    }
    EXPECT_GE(resident_bytes() - before, int64_t{300} << 20);
  }
  EXPECT_LE(resident_bytes() - before, int64_t{100} << 20);
}

// Takes a tensor's memory away, and looks at it before and after others have used it.
TEST(IdleMemory, ServesOtherTensorsUntilItIsFetched) {
  pool_large_tensors();
  const at::Tensor tensor = at::ones({64 * kMiFloats});
  const int64_t before = resident_bytes();
  lend_memory(tensor);
  const at::Tensor other = at::full({50 * kMiFloats}, 3.0);
  EXPECT_LE(resident_bytes() - before, int64_t{10} << 20);
  const at::Tensor half = tensor.narrow(0, 0, 32 * kMiFloats);
  fetch_memory(half);
  half.fill_(2.0);
  tensor.narrow(0, 32 * kMiFloats, 32 * kMiFloats).fill_(5.0);
  fetch_memory(tensor);  // changes nothing that was written
  EXPECT_EQ(half.sum().item<double>(), 2.0 * 32 * kMiFloats);
  EXPECT_EQ(tensor.sum().item<double>(), 7.0 * 32 * kMiFloats);
  EXPECT_EQ(other.sum().item<double>(), 3.0 * 50 * kMiFloats);
}

TEST(IdleMemory, IsLentOnlyByTensorsOfThePool) {
  pool_large_tensors();
  const at::Tensor small = at::ones({5});
  const at::Tensor cut = at::ones({4 * kMiFloats, 2}).select(1, 0);
  for (const at::Tensor& tensor : {small, cut}) {
    lend_memory(tensor);
    fetch_memory(tensor);
    EXPECT_EQ(tensor.sum().item<double>(), double(tensor.numel()));
  }
}

}  // namespace
}  // namespace deepspeed::device
