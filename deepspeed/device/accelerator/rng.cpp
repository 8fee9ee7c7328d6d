#include "deepspeed/device/accelerator/rng.h"

#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/device/accelerator/current_device.h"

namespace deepspeed::device {
namespace {

// The finaliser of the SplitMix64 generator: every input bit affects every output bit.
uint64_t mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

at::Generator cuda_generator(int index) {
  return at::globalContext().getAcceleratorHooksInterface(at::kCUDA).getDefaultGenerator(
      static_cast<c10::DeviceIndex>(index));
}

}  // namespace

at::Tensor cpu_rng_state() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_cpu_rng_state(const at::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  const auto expected = generator.get_state().numel();
  constexpr const char* kWayOut = " of Byte on the CPU; pass what cpu_rng_state() returned";
  if (!state.defined()) {
    raise<UsageError>("the state of the CPU generator is undefined, expected ", expected, kWayOut);
  }
  if (state.scalar_type() != at::kByte || !state.is_cpu() || state.numel() != expected) {
    raise<UsageError>("the state of the CPU generator has ", state.numel(), " elements of ",
                      state.scalar_type(), " on ", state.device(), ", expected ", expected, kWayOut);
  }
  generator.set_state(state.contiguous());
}

at::Tensor cuda_rng_state() {
  auto generator = cuda_generator(current_cuda_device());
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_cuda_rng_state(const at::Tensor& state) {
  auto generator = cuda_generator(current_cuda_device());
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void seed_generators(uint64_t seed) {
  {
    auto generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
  for (int index = 0; index < num_cuda_devices(); ++index) {
    auto generator = cuda_generator(index);
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

uint64_t stream_seed(uint64_t seed, RngStream stream, int rank) {
  return mix(mix(mix(seed) ^ static_cast<uint64_t>(stream)) ^ static_cast<uint64_t>(rank));
}

SeededScope::SeededScope(uint64_t seed) : cpu_state_(cpu_rng_state()) {
  if (num_cuda_devices() > 0) cuda_state_ = cuda_rng_state();
  seed_generators(seed);
}

SeededScope::~SeededScope() {
  try {
    set_cpu_rng_state(cpu_state_);
    if (cuda_state_.defined()) set_cuda_rng_state(cuda_state_);
  } catch (const std::exception& error) {
    log::error("device.rng: the generators' state could not be put back: ", error.what());
  }
}

}  // namespace deepspeed::device
