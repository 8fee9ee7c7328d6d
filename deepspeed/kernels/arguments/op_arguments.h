// Checks and reads what the fused operators are given. Every error names the argument.
#pragma once

#include <cstdint>
#include <source_location>

#include <ATen/core/Tensor.h>

#include "deepspeed/kernels/arguments/op_arrays.h"

namespace deepspeed::kernels {

/// Throws UsageError unless the tensor is defined and dense, lies on the CPU or a CUDA device, and is fp32,
/// bf16, fp16 or fp64.
void check_op_input(const char* name, const at::Tensor& tensor,
                    const std::source_location& where = std::source_location::current());
/// Does so, and returns the contiguous tensor.
at::Tensor op_input(const char* name, const at::Tensor& tensor,
                    const std::source_location& where = std::source_location::current());

/// Throws UsageError unless the tensor is defined and its shape, dtype and device are those of `other`, which
/// the error calls `other_name`.
void check_op_input_like(const char* name, const at::Tensor& tensor, const char* other_name,
                         const at::Tensor& other,
                         const std::source_location& where = std::source_location::current());
/// Does so, and returns the contiguous tensor.
at::Tensor op_input_like(const char* name, const at::Tensor& tensor, const char* other_name,
                         const at::Tensor& other,
                         const std::source_location& where = std::source_location::current());
/// Does so too, but takes an undefined tensor for one that is left out, and returns it.
at::Tensor optional_like(const char* name, const at::Tensor& tensor, const char* other_name,
                         const at::Tensor& other,
                         const std::source_location& where = std::source_location::current());

/// Throws UsageError unless `tensor` has the dtype of `input` or, beside 16 bits, fp32, and lies on its
/// device.
void check_beside(const char* name, const at::Tensor& tensor, const at::Tensor& input,
                  const std::source_location& where = std::source_location::current());

/// Returns a contiguous parameter [columns] that goes with the last dimension of `input`; it may be
/// undefined.
at::Tensor op_parameter(const char* name, const at::Tensor& tensor, const at::Tensor& input,
                        const std::source_location& where = std::source_location::current());

/// Returns the size of the last dimension. Throws UsageError where there is none.
int64_t columns_of(const char* name, const at::Tensor& tensor,
                   const std::source_location& where = std::source_location::current());

/// Returns the dtype of arithmetic and of sums: fp32, of fp64 fp64.
at::ScalarType wide_dtype(const at::Tensor& tensor);

/// Returns the type of a parameter's elements; an absent one gives that of `input`.
ElementType parameter_type(const at::Tensor& parameter, const at::Tensor& input);

/// Returns how rows of `columns` elements are cut into parts, each with a sum of its own.
RowParts row_parts(int64_t rows, int64_t columns, const at::Device& device);

/// Returns sums [parts, columns] that are not set yet, or an undefined tensor where `parameter` is.
at::Tensor empty_parts(const RowParts& rows, const at::Tensor& input, const at::Tensor& parameter);

/// Writes tensor * factor to `result`, rounded once; it has the tensor's sizes and dtype, and may be the
/// tensor. The factor is wide, []. On CUDA torch's operators round such a number to 16 bits first, where a
/// loss scale may be infinite.
void multiply_by(const at::Tensor& tensor, const at::Tensor& factor, at::Tensor result);

/// Returns the address of the first element, null for an undefined tensor.
const void* const_data(const at::Tensor& tensor);
void* mutable_data(const at::Tensor& tensor);

}  // namespace deepspeed::kernels
