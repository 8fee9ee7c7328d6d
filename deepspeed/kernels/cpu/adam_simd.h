// The vector code of CPU Adam behind a plain function, which picks the best instruction set at run time.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/adam_arguments.h"

namespace deepspeed::kernels {

/// Updates the elements [begin, end). Every instruction set, and every way to cut the range, gives the same
/// bits: no multiply-add is contracted, and the last elements go through the same vector code, padded.
/// `stream`: write the 16-bit copy past the caches.
void adam_simd(const AdamArrays& arrays, const AdamConstants& constants, int64_t begin, int64_t end,
               bool stream);

}  // namespace deepspeed::kernels
