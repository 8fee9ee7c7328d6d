// A plain function hides the vector code of the update rules, and picks the best instruction set at run time.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/update_rules.h"

namespace deepspeed::kernels {

/// Updates the elements [begin, end). Every instruction set, and every way to cut the range, gives the same
/// bits: no multiply-add is contracted, and the last elements go through the same vector code, padded.
void update_simd(const UpdateArrays& arrays, const UpdateRule& rule, int64_t begin, int64_t end);

}  // namespace deepspeed::kernels
