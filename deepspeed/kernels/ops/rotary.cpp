#include "deepspeed/kernels/ops/rotary.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/pow.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/arguments/op_arguments.h"
#include "deepspeed/kernels/ops/dispatch.h"

namespace deepspeed::kernels {
namespace {

void check_rotary_table(const char* name, const at::Tensor& table, const at::Tensor& input) {
  check_op_input(name, table);
  check_beside(name, table, input);
  const bool has_batch = table.dim() == 3 && table.size(0) == input.size(0);
  if (!(table.dim() == 2 || has_batch) || table.size(-2) != input.size(2) ||
      2 * table.size(-1) > input.size(3)) {
    raise<UsageError>(name, " has shape ", table.sizes(), ", expected [", input.size(2), ", rotary / 2] or [",
                      input.size(0), ", ", input.size(2), ", rotary / 2], with a rotary of at most ",
                      input.size(3));
  }
}

void copy_strides(const at::Tensor& tensor, int64_t (&strides)[3]) {
  std::copy_n(tensor.strides().begin(), 3, strides);
}

}  // namespace

at::Tensor rotary_embedding(const at::Tensor& given, const at::Tensor& given_cos, const at::Tensor& given_sin,
                            RotaryPairs pairs, bool backward) {
  check_op_input("input", given);
  if (given.dim() != 4) {
    raise<UsageError>("input has shape ", given.sizes(), ", expected [batch, heads, positions, dim]");
  }
  check_rotary_table("cos", given_cos, given);
  check_op_input_like("sin", given_sin, "cos", given_cos);
  const at::Tensor input = given.stride(3) == 1 ? given : given.contiguous();
  const at::Tensor cos = given_cos.contiguous(), sin = given_sin.contiguous();
  const at::Tensor output = at::empty_like(input);
  if (input.numel() == 0) return output;
  RotaryArrays arrays;
  arrays.input = input.const_data_ptr();
  arrays.output = output.data_ptr();
  arrays.cos = cos.const_data_ptr();
  arrays.sin = sin.const_data_ptr();
  arrays.batch = input.size(0);
  arrays.heads = input.size(1);
  arrays.positions = input.size(2);
  arrays.dim = input.size(3);
  arrays.rotary = 2 * cos.size(-1);
  copy_strides(input, arrays.input_strides);
  copy_strides(output, arrays.output_strides);
  arrays.table_batch_stride = cos.dim() == 3 ? cos.stride(0) : 0;
  arrays.neighbours = pairs == RotaryPairs::kNeighbours;
  arrays.backward = backward;
  arrays.type = element_type(input.scalar_type());
  arrays.table_type = element_type(cos.scalar_type());
  run_op(input.device(), arrays);
  return output;
}

RotaryTables rotary_tables(int64_t positions, int64_t rotary, double base, const at::Device& device,
                           int64_t first_position, at::ScalarType dtype) {
  if (positions < 0) raise<UsageError>("positions is ", positions, ", expected 0 or more");
  if (rotary < 2 || rotary % 2 != 0)
    raise<UsageError>("rotary is ", rotary, ", expected an even number above 0");
  if (!(base > 0)) raise<UsageError>("base is ", base, ", expected a number above 0");
  element_type(dtype);  // checks the dtype
  // In double, because the angle of a far position would lose its fraction in fp32.
  const at::TensorOptions options = at::TensorOptions(at::kDouble).device(device);
  const at::Tensor exponents = at::arange(0, rotary, 2, options).mul_(-1.0 / static_cast<double>(rotary));
  const at::Tensor angles =
      at::arange(first_position, first_position + positions, options).unsqueeze(1) * at::pow(base, exponents);
  return {angles.cos().to(dtype), angles.sin().to(dtype)};
}

}  // namespace deepspeed::kernels
