// Checks tensors that a kernel takes as plain arrays.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <source_location>

#include <ATen/core/Tensor.h>

#include "deepspeed/kernels/arguments/element_type.h"

namespace deepspeed::kernels {

/// Throws UsageError unless the tensor is defined, dense, contiguous and of a listed dtype. The error names
/// `where` and `name`.
void check_array(const char* name, const at::Tensor& tensor, std::initializer_list<at::ScalarType> dtypes,
                 const std::source_location& where = std::source_location::current());

/// Throws UsageError unless the tensor has `numel` elements and is on `device`.
void check_fits(const char* name, const at::Tensor& tensor, int64_t numel, const at::Device& device,
                const std::source_location& where = std::source_location::current());

/// Throws UsageError unless the scale is undefined or one fp64 number on `device`.
void check_gradient_scale(const at::Tensor& scale, const at::Device& device,
                          const std::source_location& where = std::source_location::current());

/// Returns the element type of a dtype. Throws UsageError for a dtype other than fp32, fp16, bf16 and fp64.
ElementType element_type(at::ScalarType dtype,
                         const std::source_location& where = std::source_location::current());

}  // namespace deepspeed::kernels
