// The statuses with which programs end; they are those of Python's argparse.
#pragma once

namespace deepspeed::launcher {

constexpr int kErrorExitCode = 1;
constexpr int kUsageExitCode = 2;

}  // namespace deepspeed::launcher
