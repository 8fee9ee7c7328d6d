// The clock of timeouts and measured times: steady, and independent of the wall clock.
#pragma once

#include <chrono>

namespace deepspeed {

using Clock = std::chrono::steady_clock;

}  // namespace deepspeed
