#include "deepspeed/engine/assembly/seed.h"

#include <mutex>
#include <string>

#include <ATen/CPUGeneratorImpl.h>

#include "deepspeed/device/accelerator/rng.h"

namespace deepspeed {
namespace {

uint64_t default_generator_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.current_seed();
}

}  // namespace

uint64_t start_rank_streams(const std::optional<int64_t>& config_seed, const comm::World& world,
                            const comm::ProcessGroup& ranks, bool divides_default) {
  uint64_t seed = config_seed ? static_cast<uint64_t>(*config_seed) : default_generator_seed();
  // Stages of a pipeline may have seeded layers each: the order of the data must be one.
  if (!config_seed && ranks.size() > 1) seed = std::stoull(ranks.broadcast_text(std::to_string(seed), 0));
  if (config_seed || (divides_default && world.size() > 1)) {
    device::seed_generators(device::stream_seed(seed, device::RngStream::kDropout, world.rank()));
  }
  return seed;
}

}  // namespace deepspeed
