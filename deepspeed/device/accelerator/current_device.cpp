#include "deepspeed/device/accelerator/current_device.h"

#include <exception>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/cuda_library.h"
#include "deepspeed/device/accelerator/page_locks.h"

namespace deepspeed::device {
namespace {

c10::impl::VirtualGuardImpl cuda() { return c10::impl::VirtualGuardImpl(at::kCUDA); }

}  // namespace

bool cuda_is_wanted() {
  const std::string asked = env::get("DS_ACCELERATOR").value_or("");
  if (asked.empty() || asked == "cuda") return true;
  if (asked == "cpu") return false;
  raise<UsageError>("DS_ACCELERATOR is '", asked, "', expected 'cuda', 'cpu' or nothing");
}

int num_cuda_devices() {
  return cuda_is_wanted() && cuda_table<PageLocks>() != nullptr ? cuda().deviceCount() : 0;
}

int current_cuda_device() {
  if (num_cuda_devices() == 0) raise<NotSupportedError>("there is no CUDA device: ", why_no_device());
  return cuda().getDevice().index();
}

void set_cuda_device(int index) {
  const int count = num_cuda_devices();
  if (count == 0) raise<NotSupportedError>("the CUDA device is ", index, ", but ", why_no_device());
  if (index < 0 || index >= count) {
    raise<UsageError>("the CUDA device is ", index, ", expected 0 to ", count - 1);
  }
  cuda().setDevice({at::kCUDA, static_cast<c10::DeviceIndex>(index)});
}

std::string why_no_device() {
  const std::string why = why_no_cuda();
  return why.empty() ? "NVIDIA's driver shows no device to this process (nvidia-smi, CUDA_VISIBLE_DEVICES)"
                     : why;
}

void synchronize() {
  if (num_cuda_devices() > 0) cuda().synchronizeDevice(cuda().getDevice().index());
}

// Errors are ignored: at the end of the process the driver may be gone already.
void synchronize_used_devices() noexcept {
  try {
    for (int index = 0; index < num_cuda_devices(); ++index) {
      const auto device = static_cast<c10::DeviceIndex>(index);
      if (at::detail::getCUDAHooks().hasPrimaryContext(device)) cuda().synchronizeDevice(device);
    }
  } catch (const std::exception&) {
  }
}

}  // namespace deepspeed::device
