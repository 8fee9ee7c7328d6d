// Checks and reads the arguments of fused operators. Every error names the argument.
#pragma once

#include <cstdint>
#include <source_location>

#include <ATen/core/Tensor.h>

#include "deepspeed/kernels/arguments/op_arrays.h"

namespace deepspeed::kernels {

/// Throws UsageError unless the tensor is a valid operator input. It must be defined, dense, on the CPU or a
/// CUDA device, and fp32, bf16, fp16 or fp64.
void check_op_input(const char* name, const at::Tensor& tensor,
                    const std::source_location& where = std::source_location::current());
/// Checks as check_op_input() does, and returns the contiguous tensor.
at::Tensor op_input(const char* name, const at::Tensor& tensor,
                    const std::source_location& where = std::source_location::current());

/// Throws UsageError unless the tensor is defined and matches `other`. Shape, dtype and device must be equal.
/// The error calls the other `other_name`.
void check_op_input_like(const char* name, const at::Tensor& tensor, const char* other_name,
                         const at::Tensor& other,
                         const std::source_location& where = std::source_location::current());
/// Checks as check_op_input_like() does, and returns the contiguous tensor.
at::Tensor op_input_like(const char* name, const at::Tensor& tensor, const char* other_name,
                         const at::Tensor& other,
                         const std::source_location& where = std::source_location::current());
/// Like op_input_like(), but an undefined tensor means "not given" and is returned unchanged.
at::Tensor optional_like(const char* name, const at::Tensor& tensor, const char* other_name,
                         const at::Tensor& other,
                         const std::source_location& where = std::source_location::current());

/// Throws UsageError unless `tensor` has the dtype and device of `input`. If `input` has 16 bits, `tensor`
/// may also be fp32.
void check_beside(const char* name, const at::Tensor& tensor, const at::Tensor& input,
                  const std::source_location& where = std::source_location::current());

/// Returns the contiguous parameter, [size of input's last dimension]; an undefined one unchanged. Throws
/// UsageError for another shape, and as check_beside() does.
at::Tensor op_parameter(const char* name, const at::Tensor& tensor, const at::Tensor& input,
                        const std::source_location& where = std::source_location::current());

/// Returns the size of the last dimension. Throws UsageError for a tensor without dimensions.
int64_t columns_of(const char* name, const at::Tensor& tensor,
                   const std::source_location& where = std::source_location::current());

/// Returns the dtype of arithmetic and sums: fp32, or fp64 for an fp64 tensor.
at::ScalarType wide_dtype(const at::Tensor& tensor);

/// Returns the element type of `parameter`, or of `input` if `parameter` is undefined.
ElementType parameter_type(const at::Tensor& parameter, const at::Tensor& input);

/// Divides rows into parts that are summed separately, enough to keep `device` busy.
RowParts row_parts(int64_t rows, int64_t columns, const at::Device& device);

/// Returns an uninitialised tensor [parts, columns] for partial sums, in wide_dtype(input). It is undefined
/// if `parameter` is.
at::Tensor empty_parts(const RowParts& rows, const at::Tensor& input, const at::Tensor& parameter);

/// Writes tensor * factor to `result`, rounded once. `result` has the tensor's sizes and dtype, and may be
/// the tensor itself. The factor is a 0-d tensor of wide_dtype(). torch's CUDA operators would first round
/// the factor to 16 bits, and a loss scale may then be infinite.
void multiply_by(const at::Tensor& tensor, const at::Tensor& factor, at::Tensor result);

/// Returns the address of the first element; null for an undefined tensor.
const void* const_data(const at::Tensor& tensor);
void* mutable_data(const at::Tensor& tensor);

}  // namespace deepspeed::kernels
