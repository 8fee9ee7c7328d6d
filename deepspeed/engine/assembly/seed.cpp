#include "deepspeed/engine/assembly/seed.h"

#include <mutex>
#include <string>

#include <ATen/CPUGeneratorImpl.h>

#include "deepspeed/base/log.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/random/cuda_rng_tracker.h"

namespace deepspeed {
namespace {

uint64_t default_generator_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.current_seed();
}

bool has_model_parallel_stream() { return get_cuda_rng_tracker().get_states().contains(kModelParallelRng); }

}  // namespace

uint64_t start_rank_streams(const StreamStart& start, const comm::World& world,
                            const ParallelGroups& groups) {
  uint64_t seed = start.config_seed ? static_cast<uint64_t>(*start.config_seed) : default_generator_seed();
  // Pipeline stages may each have seeded their layers, but the order of the data must be the same for all.
  if (!start.config_seed && groups.all.size() > 1)
    seed = std::stoull(groups.all.broadcast_text(std::to_string(seed), 0));
  if (!start.config_seed && (!start.divides_default || world.size() == 1)) return seed;
  if (start.may_be_seeded && has_model_parallel_stream()) {
    if (start.config_seed)
      log::info("[config] seed orders the data alone: the generators stay as ",
                "model_parallel_cuda_manual_seed() has set them");
    return seed;
  }
  device::seed_generators(device::stream_seed(seed, device::RngStream::kDropout, groups.slices.front()));
  return seed;
}

}  // namespace deepspeed
