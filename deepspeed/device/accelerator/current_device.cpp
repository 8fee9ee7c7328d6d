#include "deepspeed/device/accelerator/current_device.h"

#include <exception>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"

namespace deepspeed::device {

bool cuda_is_wanted() {
  const std::string asked = env::get("DS_ACCELERATOR").value_or("");
  if (asked.empty() || asked == "cuda") return true;
  if (asked == "cpu") return false;
  raise<UsageError>("DS_ACCELERATOR is '", asked, "', expected 'cuda', 'cpu' or nothing");
}

// Errors are ignored, since at the end of the process the driver may be gone already.
void synchronize_used_devices() noexcept {
  try {
    for (int index = 0; index < num_cuda_devices(); ++index) {
      const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
      if (!at::detail::getCUDAHooks().hasPrimaryContext(device.index())) continue;
      const c10::DeviceGuard guard(device);
      synchronize();
    }
  } catch (const std::exception&) {
  }
}

}  // namespace deepspeed::device
