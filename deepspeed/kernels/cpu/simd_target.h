// The CPU kernels are compiled for several instruction sets; this says which there are and chooses one.
#pragma once

#include <string>
#include <vector>

namespace deepspeed::kernels {

/// Returns the names of those that this machine can run, best first, e.g. {"AVX2", "SSE4", "SSE2"}.
std::vector<std::string> simd_targets();

/// Makes the kernels of this process use the named one; "" goes back to the best. For tests and comparisons;
/// not safe while a kernel runs. Throws UsageError for a name that simd_targets() does not hold.
void use_simd_target(const std::string& name);

}  // namespace deepspeed::kernels
