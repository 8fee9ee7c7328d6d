// The element types of kernels, for code that sees raw pointers and not tensors.
#pragma once

namespace deepspeed::kernels {

enum class ElementType { kFloat32, kFloat16, kBFloat16, kFloat64 };

}  // namespace deepspeed::kernels
