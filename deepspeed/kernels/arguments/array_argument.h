// Checks of tensors that a kernel takes as plain arrays.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <ATen/core/Tensor.h>

#include "deepspeed/kernels/arguments/element_type.h"

namespace deepspeed::kernels {

/// Throws UsageError, naming `where` and `name`, unless the tensor is defined, dense and contiguous and its
/// dtype is one of `dtypes`.
void check_array(const char* where, const char* name, const at::Tensor& tensor,
                 std::initializer_list<at::ScalarType> dtypes);

/// Throws UsageError unless the tensor has `numel` elements and lies on `device`.
void check_fits(const char* where, const char* name, const at::Tensor& tensor, int64_t numel,
                const at::Device& device);

/// Throws UsageError for a dtype other than fp32, fp16, bf16 and fp64.
ElementType element_type(const char* where, at::ScalarType dtype);

}  // namespace deepspeed::kernels
