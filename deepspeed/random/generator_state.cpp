#include "deepspeed/random/generator_state.h"

#include <exception>

#include "deepspeed/base/log.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/random/cuda_rng_tracker.h"

namespace deepspeed {

GeneratorStates GeneratorStates::now() {
  GeneratorStates states;
  states.cpu = device::cpu_rng_state();
  if (device::num_cuda_devices() > 0) states.cuda = device::cuda_rng_state();
  states.tracker = get_cuda_rng_tracker().get_states();
  return states;
}

void GeneratorStates::set() const {
  device::set_cpu_rng_state(cpu);
  if (cuda.defined()) device::set_cuda_rng_state(cuda);
  get_cuda_rng_tracker().set_states(tracker);
}

bool GeneratorStates::operator==(const GeneratorStates& other) const {
  return cpu.equal(other.cpu) && (!cuda.defined() || cuda.equal(other.cuda));
}

PreserveGenerators::PreserveGenerators(const GeneratorStates& inside) : before_(GeneratorStates::now()) {
  inside.set();
}

PreserveGenerators::~PreserveGenerators() {
  try {
    before_.set();
  } catch (const std::exception& error) {
    log::error("random.generator_state: the generators' states could not be put back: ", error.what());
  }
}

}  // namespace deepspeed
