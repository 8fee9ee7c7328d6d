// What the host asks of the driver for its memory.
#include <gtest/gtest.h>

#include "deepspeed/device/accelerator/host_memory.h"

#include "tests/null_gpu/null_gpu.h"

namespace deepspeed::testing {
namespace {

TEST(NullGpuMemory, IsThereBeforeTheDriverLocksIt) {
  null_gpu::take_counts();
  const at::Tensor memory =
      device::empty_host((100 << 18) + 1, at::kFloat, true);  // a little more than 100 MiB
  auto counts = null_gpu::take_counts();
  EXPECT_EQ(counts["cudaHostRegister"], 1);
  EXPECT_EQ(counts["cudaHostRegister of pages without memory"], 0)
      << "one thread of the driver would make them";
}

}  // namespace
}  // namespace deepspeed::testing
