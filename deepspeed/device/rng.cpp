#include "deepspeed/device/rng.h"

#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/cuda_rng.h"

namespace deepspeed::device {
namespace {

at::Generator& cpu_generator() {
  static at::Generator generator = at::detail::getDefaultCPUGenerator();
  return generator;
}

}  // namespace

RngState rng_state() {
  at::Generator& generator = cpu_generator();
  const std::lock_guard lock(generator.mutex());
  return {generator.get_state(), cuda_rng_state()};
}

void set_rng_state(const RngState& state) {
  if (!state.cpu.defined() || state.cpu.scalar_type() != at::kByte) {
    raise<UsageError>("device.rng", "the state of the CPU generator is not a byte tensor");
  }
  {
    at::Generator& generator = cpu_generator();
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state.cpu);
  }
  if (state.cuda.defined()) set_cuda_rng_state(state.cuda);
}

void manual_seed(uint64_t seed) {
  {
    at::Generator& generator = cpu_generator();
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
  seed_cuda_rng(seed);
}

uint64_t current_seed() {
  at::Generator& generator = cpu_generator();
  const std::lock_guard lock(generator.mutex());
  return generator.current_seed();
}

uint64_t stream_seed(uint64_t seed, uint64_t stream) {
  uint64_t mixed = seed + 0x9E3779B97F4A7C15ULL * (stream + 1);
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
  return mixed ^ (mixed >> 31);
}

}  // namespace deepspeed::device
