// The instruction sets that the CPU kernels are compiled for, and which of them is in use.
#pragma once

#include <string>
#include <vector>

namespace deepspeed::kernels {

/// Names of those that this machine can run, best first, e.g. {"AVX2", "SSE4", "SSSE3", "SSE2"}.
std::vector<std::string> simd_targets();

/// Makes the kernels of this process use the named one; "" goes back to the best. For tests and comparisons;
/// not safe while a kernel runs. Throws UsageError for a name that simd_targets() does not hold.
void use_simd_target(const std::string& name);

}  // namespace deepspeed::kernels
