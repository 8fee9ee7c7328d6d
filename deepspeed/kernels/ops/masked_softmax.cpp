#include "deepspeed/kernels/ops/masked_softmax.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty_like.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/arguments/op_arguments.h"
#include "deepspeed/kernels/ops/dispatch.h"

namespace deepspeed::kernels {
namespace {

/// Returns the mask in the scores' shape, with adjacent keys. Dimensions that it lacks have stride 0.
at::Tensor broadcast_mask(const at::Tensor& mask, const at::Tensor& scores) {
  if (mask.scalar_type() == at::kBool) {
    raise<UsageError>(
        "mask has dtype Bool, expected an additive mask: 0 where a key counts, -inf where it does not");
  }
  check_beside("mask", mask, scores);
  check_op_input("mask", mask);
  if (mask.dim() == 0 || mask.size(-1) != scores.size(-1) || mask.dim() > scores.dim() ||
      !at::is_expandable_to(mask.sizes(), scores.sizes())) {
    raise<UsageError>("mask has shape ", mask.sizes(), ", expected one that broadcasts to scores, ",
                      scores.sizes(), ", with all ", scores.size(-1), " keys");
  }
  return (mask.stride(-1) == 1 ? mask : mask.contiguous()).expand(scores.sizes());
}

void write_softmax(const at::Tensor& scores, const at::Tensor& given_mask, double scale,
                   const at::Tensor& output) {
  const int64_t keys = columns_of("scores", scores);
  if (scores.dim() > kMaxMaskDims + 1) {
    raise<UsageError>("scores have ", scores.dim(), " dimensions, expected at most ", kMaxMaskDims + 1);
  }
  const at::Tensor mask = given_mask.defined() ? broadcast_mask(given_mask, scores) : given_mask;
  if (scores.numel() == 0) return;
  MaskedSoftmaxArrays arrays;
  arrays.scores = scores.const_data_ptr();
  arrays.mask = const_data(mask);
  arrays.output = output.data_ptr();
  arrays.rows = scores.numel() / keys;
  arrays.columns = keys;
  arrays.scale = scale;
  arrays.mask_dims = static_cast<int>(scores.dim()) - 1;
  for (int dim = 0; dim < arrays.mask_dims; ++dim) {
    arrays.mask_sizes[dim] = scores.size(dim);
    arrays.mask_strides[dim] = mask.defined() ? mask.stride(dim) : 0;
  }
  arrays.type = element_type(scores.scalar_type());
  arrays.mask_type = parameter_type(mask, scores);
  run_op(scores.device(), arrays);
}

void write_backward(const at::Tensor& grad_output, const at::Tensor& output, double scale,
                    const at::Tensor& to) {
  const int64_t columns = columns_of("output", output);
  if (output.numel() == 0) return;
  SoftmaxBackwardArrays arrays;
  arrays.grad_output = grad_output.const_data_ptr();
  arrays.output = output.const_data_ptr();
  arrays.grad_input = to.data_ptr();
  arrays.rows = output.numel() / columns;
  arrays.columns = columns;
  arrays.scale = scale;
  arrays.type = element_type(output.scalar_type());
  run_op(output.device(), arrays);
}

void check_in_place(const char* name, const at::Tensor& tensor) {
  check_op_input(name, tensor);
  if (!tensor.is_contiguous()) {
    raise<UsageError>(name, " of shape ", tensor.sizes(), " is not contiguous; pass its contiguous()");
  }
}

}  // namespace

at::Tensor masked_softmax(const at::Tensor& given, const at::Tensor& mask, double scale) {
  const at::Tensor scores = op_input("scores", given);
  const at::Tensor output = at::empty_like(scores);
  write_softmax(scores, mask, scale, output);
  return output;
}

void masked_softmax_(const at::Tensor& scores, const at::Tensor& mask, double scale) {
  check_in_place("scores", scores);
  write_softmax(scores, mask, scale, scores);
}

at::Tensor masked_softmax_backward(const at::Tensor& given, const at::Tensor& given_output, double scale) {
  const at::Tensor output = op_input("output", given_output);
  const at::Tensor grad_output = op_input_like("grad_output", given, "output", output);
  const at::Tensor grad_scores = at::empty_like(output);
  write_backward(grad_output, output, scale, grad_scores);
  return grad_scores;
}

void masked_softmax_backward_(const at::Tensor& grad, const at::Tensor& given_output, double scale) {
  const at::Tensor output = op_input("output", given_output);
  check_in_place("grad", grad);
  check_op_input_like("grad", grad, "output", output);
  write_backward(grad, output, scale, grad);
}

}  // namespace deepspeed::kernels
