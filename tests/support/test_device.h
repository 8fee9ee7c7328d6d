// Where tests that suit every device train: on the CPU over Gloo, or, where DS_TEST_DEVICE is "cuda", on CUDA
// devices over NCCL. The simulated device (tests/simulated_cuda) runs tests of the CPU so.
#pragma once

#include <ATen/core/Tensor.h>

#include "deepspeed/base/env.h"

namespace deepspeed::testing {

inline bool tests_use_cuda() { return env::get("DS_TEST_DEVICE").value_or("") == "cuda"; }
inline at::Device test_device() { return tests_use_cuda() ? at::kCUDA : at::kCPU; }
inline const char* test_backend() { return tests_use_cuda() ? "nccl" : "gloo"; }

}  // namespace deepspeed::testing
