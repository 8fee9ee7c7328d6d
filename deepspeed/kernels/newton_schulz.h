// Matrices are orthogonalized by a quintic Newton-Schulz iteration, as Muon needs it (Jordan 2024).
//
// Five times X <- a X + b (X X') X + c (X X')^2 X with (a, b, c) = (3.4445, -4.7750, 2.0315), from X / (|X| +
// 1e-7) with the Frobenius norm: singular values end near 1, between about 0.7 and 1.2.
#pragma once

#include <source_location>
#include <string>

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

enum class NewtonSchulzMethod {
  kStandard,  // iterates on X
  kGram  // iterates on X X', which is smaller, and multiplies X at the end; a square X is done the standard
         // way
};

/// Reads the method's name, "standard" or "gram". Throws UsageError, naming `where`, for another text.
NewtonSchulzMethod newton_schulz_method(const std::string& name,
                                        const std::source_location& where = std::source_location::current());

/// Orthogonalizes `matrices`, (..., rows, cols) fp32; returns fp32 of that shape. The products are made in
/// fp32 on CPU, on CUDA in bf16 (standard) or fp16 (gram), where the matrix units are. Throws UsageError for
/// fewer than two dimensions.
at::Tensor orthogonalize(const at::Tensor& matrices, NewtonSchulzMethod method);

}  // namespace deepspeed::kernels
