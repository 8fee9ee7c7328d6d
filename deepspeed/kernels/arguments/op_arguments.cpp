#include "deepspeed/kernels/arguments/op_arguments.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"

namespace deepspeed::kernels {
namespace {

bool has_16_bits(const at::Tensor& tensor) { return tensor.element_size() == 2; }

}  // namespace

void check_op_input(const char* name, const at::Tensor& tensor, const std::source_location& where) {
  if (!tensor.defined()) raise_at<UsageError>(where, name, " is undefined, expected a tensor");
  if (tensor.layout() != at::kStrided) {
    raise_at<UsageError>(where, name, " has layout ", tensor.layout(),
                         ", expected a dense tensor; pass its to_dense()");
  }
  if (!tensor.is_cpu() && !tensor.is_cuda()) {
    raise_at<UsageError>(where, name, " lies on ", tensor.device(), ", expected CPU or CUDA");
  }
  const at::ScalarType dtype = tensor.scalar_type();
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf && dtype != at::kDouble) {
    raise_at<UsageError>(where, name, " has dtype ", dtype, ", expected Float, BFloat16, Half or Double");
  }
}

at::Tensor op_input(const char* name, const at::Tensor& tensor, const std::source_location& where) {
  check_op_input(name, tensor, where);
  return tensor.contiguous();
}

void check_op_input_like(const char* name, const at::Tensor& tensor, const char* other_name,
                         const at::Tensor& other, const std::source_location& where) {
  check_op_input(name, tensor, where);
  if (tensor.sizes() != other.sizes()) {
    raise_at<UsageError>(where, name, " has shape ", tensor.sizes(), ", expected that of ", other_name, ", ",
                         other.sizes());
  }
  if (tensor.scalar_type() != other.scalar_type()) {
    raise_at<UsageError>(where, name, " has dtype ", tensor.scalar_type(), ", expected that of ", other_name,
                         ", ", other.scalar_type());
  }
  if (tensor.device() != other.device()) {
    raise_at<UsageError>(where, name, " lies on ", tensor.device(), ", expected ", other.device(),
                         ", the place of ", other_name);
  }
}

at::Tensor op_input_like(const char* name, const at::Tensor& tensor, const char* other_name,
                         const at::Tensor& other, const std::source_location& where) {
  check_op_input_like(name, tensor, other_name, other, where);
  return tensor.contiguous();
}

at::Tensor optional_like(const char* name, const at::Tensor& tensor, const char* other_name,
                         const at::Tensor& other, const std::source_location& where) {
  return tensor.defined() ? op_input_like(name, tensor, other_name, other, where) : tensor;
}

void check_beside(const char* name, const at::Tensor& tensor, const at::Tensor& input,
                  const std::source_location& where) {
  const bool is_wide = has_16_bits(input) && tensor.scalar_type() == at::kFloat;
  if (tensor.scalar_type() != input.scalar_type() && !is_wide) {
    raise_at<UsageError>(where, name, " has dtype ", tensor.scalar_type(), ", expected ", input.scalar_type(),
                         has_16_bits(input) ? " or Float" : "");
  }
  if (tensor.device() != input.device()) {
    raise_at<UsageError>(where, name, " lies on ", tensor.device(), ", expected ", input.device());
  }
}

at::Tensor op_parameter(const char* name, const at::Tensor& tensor, const at::Tensor& input,
                        const std::source_location& where) {
  if (!tensor.defined()) return tensor;
  if (tensor.dim() != 1 || tensor.size(0) != input.size(-1)) {
    raise_at<UsageError>(where, name, " has shape ", tensor.sizes(), ", expected [", input.size(-1),
                         "], the last dimension of ", input.sizes());
  }
  check_beside(name, tensor, input, where);
  return op_input(name, tensor, where);
}

int64_t columns_of(const char* name, const at::Tensor& tensor, const std::source_location& where) {
  if (tensor.dim() == 0) raise_at<UsageError>(where, name, " has shape [], expected a last dimension");
  return tensor.size(-1);
}

at::ScalarType wide_dtype(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

ElementType parameter_type(const at::Tensor& parameter, const at::Tensor& input) {
  return element_type(parameter.defined() ? parameter.scalar_type() : input.scalar_type());
}

RowParts row_parts(int64_t rows, int64_t columns, const at::Device& device) {
  // Parts have enough rows that their sums cost little, and there are enough parts for the device.
  const int64_t rows_of_part = device.is_cuda() ? 8 : 16, most = device.is_cuda() ? 1024 : 256;
  return {rows, columns, std::clamp<int64_t>(rows / rows_of_part, 1, most)};
}

at::Tensor empty_parts(const RowParts& rows, const at::Tensor& input, const at::Tensor& parameter) {
  if (!parameter.defined()) return {};
  return at::empty({rows.parts, rows.columns}, input.options().dtype(wide_dtype(input)));
}

void multiply_by(const at::Tensor& tensor, const at::Tensor& factor, at::Tensor result) {
  // torch computes with a tensor that has a dimension as it is, without rounding it first.
  at::mul_out(result, tensor, tensor.is_cpu() ? factor : factor.view({1}));
}

const void* const_data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

void* mutable_data(const at::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; }

}  // namespace deepspeed::kernels
