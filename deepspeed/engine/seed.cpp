#include "deepspeed/engine/seed.h"

#include "deepspeed/device/rng.h"

namespace deepspeed {

void manual_seed(uint64_t seed) { device::manual_seed(seed); }

uint64_t start_rank_streams(const std::optional<int64_t>& config_seed, const comm::World& world) {
  const uint64_t seed = config_seed ? static_cast<uint64_t>(*config_seed) : device::current_seed();
  if (config_seed || world.size() > 1) {
    device::manual_seed(device::stream_seed(seed, static_cast<uint64_t>(world.rank())));
  }
  return seed;
}

}  // namespace deepspeed
