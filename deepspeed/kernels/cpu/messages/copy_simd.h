// A plain function hides the vector code of copy, and picks the best instruction set at run time.
#pragma once

#include <cstddef>

namespace deepspeed::kernels {

/// Copies between ranges that do not overlap, past the caches.
void copy_past_caches_simd(void* to, const void* from, size_t bytes);

}  // namespace deepspeed::kernels
