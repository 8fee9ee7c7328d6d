// The functions of deepspeed/device/accelerator/cuda over the simulated device.
#include <mutex>

#include <ATen/Context.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/host_memory.h"
#include "deepspeed/device/accelerator/memory.h"
#include "deepspeed/device/accelerator/rng.h"

#include "tests/simulated_cuda/device/memory.h"
#include "tests/simulated_cuda/device/streams.h"

namespace deepspeed::device {

int num_cuda_devices() { return cuda_is_wanted() ? simulated::kNumDevices : 0; }
int current_cuda_device() { return simulated::current_device(); }

void set_cuda_device(int index) {
  if (index < 0 || index >= num_cuda_devices()) {
    raise<UsageError>("the CUDA device is ", index, ", expected 0 to ", num_cuda_devices() - 1);
  }
  simulated::set_device(index);
}

void synchronize() {
  if (num_cuda_devices() > 0) simulated::synchronize_device(simulated::current_device(), "device::synchronize()");
}

namespace {
at::Generator generator_of(int index) {
  return at::globalContext().defaultGenerator(simulated::device_of(index));
}
}  // namespace

void seed_cuda_generators(uint64_t seed) {
  for (int index = 0; index < num_cuda_devices(); ++index) {
    auto generator = generator_of(index);
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

at::Tensor cuda_rng_state() {
  auto generator = generator_of(simulated::current_device());
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_cuda_rng_state(const at::Tensor& state) {
  auto generator = generator_of(simulated::current_device());
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void lock_pages(void* data, size_t bytes) {
  simulated::note_use(simulated::current_device(), "lock_pages()");
  simulated::pin(data, bytes);
}

void unlock_pages(void* data) noexcept {
  simulated::note_use(simulated::current_device(), "unlock_pages()");
  simulated::unpin(data);
}

int64_t cuda_allocated_bytes() { return simulated::allocated_bytes(simulated::current_device()); }
int64_t cuda_peak_allocated_bytes() { return simulated::peak_allocated_bytes(simulated::current_device()); }

}  // namespace deepspeed::device
