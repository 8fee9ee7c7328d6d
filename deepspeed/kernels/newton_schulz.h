// Orthogonalizes matrices with a quintic Newton-Schulz iteration, as Muon needs it (Jordan 2024).
//
// It starts from X / (|X| + 1e-7), with the Frobenius norm, and makes five steps X <- a X + b (X X') X + c (X
// X')^2 X with (a, b, c) = (3.4445, -4.7750, 2.0315). Singular values end near 1, between about 0.7 and 1.2.
#pragma once

#include <source_location>
#include <string>

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

enum class NewtonSchulzMethod {
  kStandard,  // iterates on X
  kGram       // iterates on the smaller X X' and multiplies X at the end; a square X uses kStandard
};

/// Reads a method's name, "standard" or "gram". Throws UsageError, naming `where`, for any other text.
NewtonSchulzMethod newton_schulz_method(const std::string& name,
                                        const std::source_location& where = std::source_location::current());

/// Returns the orthogonalized `matrices`; both are fp32 (..., rows, cols). Products are made in fp32 on CPU.
/// On CUDA they use the matrix units, in bf16 (standard) or fp16 (gram). Throws UsageError for fewer than two
/// dimensions.
at::Tensor orthogonalize(const at::Tensor& matrices, NewtonSchulzMethod method);

}  // namespace deepspeed::kernels
