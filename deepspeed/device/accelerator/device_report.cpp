#include "deepspeed/device/accelerator/device_report.h"

#include <string>

#include <torch/headeronly/version.h>

#include "deepspeed/device/accelerator/current_device.h"

namespace deepspeed::device {

std::vector<std::pair<std::string, std::string>> device_report() {
  const int count = num_cuda_devices();
  return {{"LibTorch", TORCH_VERSION},
          {"CUDA devices", count > 0 ? std::to_string(count) : "none: " + why_no_device()}};
}

}  // namespace deepspeed::device
