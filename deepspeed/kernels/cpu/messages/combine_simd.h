// A plain function hides the vector code of combine, and picks the best instruction set at run time.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/combine_arguments.h"

namespace deepspeed::kernels {

/// Does what combine() says, for two terms or more and an operation that the type has.
void combine_simd(CombineOp op, CombineType type, void* to, const void* const* terms, int64_t num_terms,
                  int64_t numel, bool stream, double factor);

}  // namespace deepspeed::kernels
