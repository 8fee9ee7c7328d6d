// What of the devices is here, for programs that report it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::device {

/// Lists the LibTorch version and the number of CUDA devices; where there is none, why.
DEEPSPEED_API std::vector<std::pair<std::string, std::string>> device_report();

}  // namespace deepspeed::device
