// The functions of device/ that call CUDA; no_cuda/ has their twins for builds without it.
#include <mutex>

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <cuda_runtime_api.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/host_memory.h"
#include "deepspeed/device/accelerator/memory.h"
#include "deepspeed/device/accelerator/rng.h"

namespace deepspeed::device {
namespace {

constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

// The allocator knows no device before the first tensor.
bool has_allocations() {
  return num_cuda_devices() > 0 && c10::cuda::CUDACachingAllocator::get()->initialized();
}

auto allocated() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device())
      .allocated_bytes[kAggregate];
}

}  // namespace

int num_cuda_devices() { return cuda_is_wanted() ? c10::cuda::device_count() : 0; }
int current_cuda_device() { return c10::cuda::current_device(); }

void set_cuda_device(int index) {
  if (index < 0 || index >= num_cuda_devices()) {
    raise<UsageError>("the CUDA device is ", index, ", expected 0 to ", num_cuda_devices() - 1);
  }
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
}

void synchronize() {
  if (num_cuda_devices() > 0) c10::cuda::device_synchronize();
}

void seed_cuda_generators(uint64_t seed) {
  for (int index = 0; index < num_cuda_devices(); ++index) {
    auto generator = at::cuda::detail::getDefaultCUDAGenerator(static_cast<c10::DeviceIndex>(index));
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

at::Tensor cuda_rng_state() {
  auto generator = at::cuda::detail::getDefaultCUDAGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_cuda_rng_state(const at::Tensor& state) {
  auto generator = at::cuda::detail::getDefaultCUDAGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void lock_pages(void* data, size_t bytes) {
  const cudaError_t error = cudaHostRegister(data, bytes, cudaHostRegisterPortable);
  if (error == cudaSuccess) return;
  cudaGetLastError();  // it is ours alone
  raise<UsageError>("cannot page-lock ", bytes, " bytes of host memory: ", cudaGetErrorString(error),
                    "; set pin_memory to false in the sections offload_optimizer and offload_param");
}

// Errors are ignored, since at the end of the process the driver may be gone already.
void unlock_pages(void* data) noexcept {
  cudaHostUnregister(data);
  cudaGetLastError();
}

int64_t cuda_allocated_bytes() { return has_allocations() ? allocated().current : 0; }
int64_t cuda_peak_allocated_bytes() { return has_allocations() ? allocated().peak : 0; }

}  // namespace deepspeed::device
