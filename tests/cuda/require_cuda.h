// The tests of this folder need a CUDA device; where there is none they are skipped, and say so.
#pragma once

#include <gtest/gtest.h>

#include "deepspeed/device/accelerator/current_device.h"

namespace deepspeed::testing {

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device::num_cuda_devices() == 0) GTEST_SKIP() << "no CUDA device, or a build without CUDA";
  }
};

}  // namespace deepspeed::testing
