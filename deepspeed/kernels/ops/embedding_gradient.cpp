#include "deepspeed/kernels/ops/embedding_gradient.h"

#include <ATen/Context.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/arguments/op_arguments.h"
#include "deepspeed/kernels/ops/dispatch.h"

namespace deepspeed::kernels {
namespace {

/// Returns the contiguous int64 indices. Throws UsageError for a wrong shape, dtype or device, and on the CPU
/// for an index outside the table.
at::Tensor checked_indices(const at::Tensor& indices, const at::Tensor& grad_output, int64_t num_embeddings) {
  if (!indices.defined()) raise<UsageError>("indices is undefined, expected a tensor");
  if (indices.scalar_type() != at::kLong && indices.scalar_type() != at::kInt) {
    raise<UsageError>("indices has dtype ", indices.scalar_type(), ", expected Long or Int");
  }
  const auto positions = grad_output.sizes().slice(0, static_cast<size_t>(grad_output.dim() - 1));
  if (indices.sizes() != positions || indices.device() != grad_output.device()) {
    raise<UsageError>("indices has shape ", indices.sizes(), " on ", indices.device(), ", expected ",
                      positions, " on ", grad_output.device(), ", as grad_output without its last dimension");
  }
  const at::Tensor contiguous = indices.to(at::kLong).contiguous();
  if (!contiguous.is_cpu()) return contiguous;
  const int64_t* const values = contiguous.const_data_ptr<int64_t>();
  for (int64_t position = 0; position < contiguous.numel(); ++position) {
    if (values[position] >= 0 && values[position] < num_embeddings) continue;
    raise<UsageError>("the index at position ", position, " is ", values[position], ", expected a row below ",
                      num_embeddings);
  }
  return contiguous;
}

}  // namespace

at::Tensor embedding_gradient(const at::Tensor& given, const at::Tensor& given_indices,
                              int64_t num_embeddings, int64_t padding_index) {
  const at::Tensor grad_output = op_input("grad_output", given);
  const int64_t dim = columns_of("grad_output", grad_output);
  if (num_embeddings < 0) raise<UsageError>("num_embeddings is ", num_embeddings, ", expected 0 or more");
  if (padding_index >= num_embeddings) {
    raise<UsageError>("padding_index is ", padding_index, ", expected a row below ", num_embeddings);
  }
  const at::Tensor indices = checked_indices(given_indices, grad_output, num_embeddings);
  const bool is_cuda = grad_output.is_cuda();
  if (is_cuda && at::globalContext().deterministicAlgorithms()) {
    return at::embedding_dense_backward(grad_output, indices, num_embeddings, padding_index, false);
  }
  const at::ScalarType dtype = is_cuda ? wide_dtype(grad_output) : grad_output.scalar_type();
  const at::Tensor grad_weight = at::zeros({num_embeddings, dim}, grad_output.options().dtype(dtype));
  if (grad_output.numel() != 0) {
    EmbeddingGradientArrays arrays;
    arrays.grad_output = grad_output.const_data_ptr();
    arrays.indices = indices.const_data_ptr<int64_t>();
    arrays.grad_weight = grad_weight.data_ptr();
    arrays.positions = indices.numel();
    arrays.dim = dim;
    arrays.num_embeddings = num_embeddings;
    arrays.padding_index = padding_index;
    arrays.type = element_type(grad_output.scalar_type());
    run_op(grad_output.device(), arrays);
  }
  return grad_weight.to(grad_output.scalar_type());
}

}  // namespace deepspeed::kernels
