// A plain function hides the vector code of CPU Adam, and picks the best instruction set at run time.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/adam_arguments.h"

namespace deepspeed::kernels {

/// Updates the elements [begin, end). Every way to cut the range gives the same bits: the last elements go
/// through the same vector code, padded. With fp32 moments every instruction set gives the same bits too,
/// since no multiply-add is contracted. With bf16 moments those that fuse them (AVX2 and later, NEON, SVE,
/// CUDA) agree with one another, and the others with one another; between the two a moment may be rounded to
/// its neighbour. `stream`: write the 16-bit copy past the caches.
void adam_simd(const AdamArrays& arrays, const AdamConstants& constants, int64_t begin, int64_t end,
               bool stream);

}  // namespace deepspeed::kernels
