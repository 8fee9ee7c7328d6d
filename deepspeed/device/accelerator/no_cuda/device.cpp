// The twins of cuda/ in a build without CUDA: there are no devices.
#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/host_memory.h"
#include "deepspeed/device/accelerator/memory.h"
#include "deepspeed/device/accelerator/rng.h"

namespace deepspeed::device {
namespace {

[[noreturn]] void refuse(const char* call) {
  raise<NotSupportedError>(call,
                           " needs CUDA, which this build does not have; build with -DDEEPSPEED_CUDA=ON");
}

}  // namespace

int num_cuda_devices() {
  cuda_is_wanted();  // throws for a value that is none
  return 0;
}
int current_cuda_device() { refuse("current_cuda_device()"); }
void set_cuda_device(int) { refuse("set_cuda_device()"); }
void synchronize() {}
void seed_cuda_generators(uint64_t) {}
at::Tensor cuda_rng_state() { refuse("cuda_rng_state()"); }
void set_cuda_rng_state(const at::Tensor&) { refuse("set_cuda_rng_state()"); }
void lock_pages(void*, size_t) { refuse("lock_pages()"); }
void unlock_pages(void*) noexcept {}
int64_t cuda_allocated_bytes() { return 0; }
int64_t cuda_peak_allocated_bytes() { return 0; }

}  // namespace deepspeed::device
