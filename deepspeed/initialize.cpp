#include "deepspeed/initialize.h"

#include "deepspeed/device/accelerator/rng.h"

namespace deepspeed {

void manual_seed(uint64_t seed) { device::seed_generators(seed); }

}  // namespace deepspeed
