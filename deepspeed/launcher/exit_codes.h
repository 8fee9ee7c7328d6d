// The statuses with which programs end, as those of Python's argparse do.
#pragma once

namespace deepspeed::launcher {

constexpr int kErrorExitCode = 1;
constexpr int kUsageExitCode = 2;

}  // namespace deepspeed::launcher
