#include "deepspeed/device/cuda_rng.h"

#include "deepspeed/base/error.h"

namespace deepspeed::device {

at::Tensor cuda_rng_state() { return {}; }

void set_cuda_rng_state(const at::Tensor&) {
  raise<UsageError>("device.rng",
                    "there is a state of a CUDA generator to restore, and this build has no CUDA");
}

void seed_cuda_rng(uint64_t) {}

}  // namespace deepspeed::device
