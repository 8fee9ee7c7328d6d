#include "deepspeed/device/cuda_rng.h"

#include <mutex>

#include <ATen/core/Generator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDAFunctions.h>

namespace deepspeed::device {
namespace {

bool has_device() { return c10::cuda::device_count() > 0; }

}  // namespace

at::Tensor cuda_rng_state() {
  if (!has_device()) return {};
  const at::Generator& generator = at::cuda::detail::getDefaultCUDAGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_cuda_rng_state(const at::Tensor& state) {
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void seed_cuda_rng(uint64_t seed) {
  if (!has_device()) return;
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace deepspeed::device
