// Describes the available devices, for programs that report them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::device {

/// Lists the LibTorch version and the number of CUDA devices, or why there are none.
DEEPSPEED_API std::vector<std::pair<std::string, std::string>> device_report();

}  // namespace deepspeed::device
