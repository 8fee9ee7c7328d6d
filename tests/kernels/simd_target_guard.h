// Goes back to the best instruction set and the number of threads that a test began with.
#pragma once

#include <ATen/Parallel.h>

#include "deepspeed/kernels/cpu/simd_target.h"

namespace deepspeed::kernels {

class SimdTargetGuard {
 public:
  SimdTargetGuard() : num_threads_(at::get_num_threads()) {}
  ~SimdTargetGuard() {
    use_simd_target("");
    at::set_num_threads(num_threads_);
  }
  SimdTargetGuard(const SimdTargetGuard&) = delete;
  SimdTargetGuard& operator=(const SimdTargetGuard&) = delete;

 private:
  int num_threads_;
};

}  // namespace deepspeed::kernels
