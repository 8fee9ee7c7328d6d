#include "deepspeed/random/generator_states.h"

#include <exception>

#include "deepspeed/base/log.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/random/rng_tracker.h"

namespace deepspeed {

GeneratorStates GeneratorStates::now() {
  GeneratorStates states;
  states.cpu = device::cpu_rng_state();
  if (device::num_cuda_devices() > 0) states.cuda = device::cuda_rng_state();
  states.tracker = get_cuda_rng_tracker().get_states();
  return states;
}

void GeneratorStates::restore() const {
  device::set_cpu_rng_state(cpu);
  if (cuda.defined()) device::set_cuda_rng_state(cuda);
  get_cuda_rng_tracker().set_states(tracker);
}

GeneratorScope::GeneratorScope(const GeneratorStates& states) : before_(GeneratorStates::now()) {
  states.restore();
}

GeneratorScope::~GeneratorScope() {
  try {
    before_.restore();
  } catch (const std::exception& error) {
    log::error("[random] the generators' states could not be put back: ", error.what());
  }
}

}  // namespace deepspeed
