#include "deepspeed/device/accelerator/current_device.h"

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"

namespace deepspeed::device {

bool cuda_is_wanted() {
  const std::string asked = env::get("DS_ACCELERATOR").value_or("");
  if (asked.empty() || asked == "cuda") return true;
  if (asked == "cpu") return false;
  raise<UsageError>("DS_ACCELERATOR is '", asked, "', expected 'cuda', 'cpu' or nothing");
}

}  // namespace deepspeed::device
