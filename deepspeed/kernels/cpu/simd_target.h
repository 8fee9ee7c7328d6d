// CPU kernels are compiled for several instruction sets. This lists them and selects one.
#pragma once

#include <string>
#include <vector>

namespace deepspeed::kernels {

/// Returns the sets that this machine can run, best first, e.g. {"AVX2", "SSE4", "SSE2"}.
std::vector<std::string> simd_targets();

/// Makes this process's kernels use the named set; "" restores the best. It is for tests and comparisons, and
/// not safe while a kernel runs. Throws UsageError for a name not in simd_targets().
void use_simd_target(const std::string& name);

}  // namespace deepspeed::kernels
