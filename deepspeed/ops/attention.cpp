#include <utility>
#include <vector>

#include <ATen/ExpandUtils.h>
#include <torch/csrc/autograd/custom_function.h>

#include "deepspeed/kernels/ops/masked_softmax.h"
#include "deepspeed/kernels/ops/rotary.h"
#include "deepspeed/ops/autograd/function.h"
#include "deepspeed/ops/autograd/whole_tensors.h"
#include "deepspeed/ops/functional.h"
#include "deepspeed/tensor/saved_value.h"

namespace deepspeed::ops {
namespace {

struct SoftmaxCall {
  double scale = 1;
  bool learns_mask = false;
  std::vector<int64_t> mask_sizes = {};  // if learns_mask
  at::ScalarType mask_dtype = at::kFloat;
};

/// Computes masked_softmax(), and keeps the output for backward. A learned mask gets the gradient of the
/// softmax's argument, summed over the dimensions that it broadcasts to.
struct MaskedSoftmax : torch::autograd::Function<MaskedSoftmax> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores,
                            const OptionalTensor& given_mask, double scale, bool learns_mask) {
    const at::Tensor mask = or_undefined(given_mask);
    const at::Tensor output = with_whole("masked_softmax", {scores, mask},
                                         [&] { return kernels::masked_softmax(scores, mask, scale); });
    context->save_for_backward({output});
    SoftmaxCall call{scale, learns_mask};
    if (learns_mask) call.mask_sizes = mask.sizes().vec(), call.mask_dtype = mask.scalar_type();
    save_value(context, std::move(call));
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_create_graph("masked_softmax");
    const auto call = saved_value<SoftmaxCall>(context);
    const at::Tensor output = context->get_saved_variables()[0];
    if (!call.learns_mask) {
      return {kernels::masked_softmax_backward(gradients[0], output, call.scale), {}, {}, {}};
    }
    const at::Tensor grad = kernels::masked_softmax_backward(gradients[0], output, 1.0);
    const at::Tensor grad_mask = at::sum_to(grad.to(call.mask_dtype), call.mask_sizes);
    return {grad.mul(call.scale), grad_mask, {}, {}};
  }
};

kernels::RotaryPairs kernel_pairs(RotaryPairs pairs) {
  return pairs == RotaryPairs::kNeighbours ? kernels::RotaryPairs::kNeighbours
                                           : kernels::RotaryPairs::kHalves;
}

struct RotaryEmbedding : torch::autograd::Function<RotaryEmbedding> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& cos,
                            const at::Tensor& sin, kernels::RotaryPairs pairs) {
    context->save_for_backward({cos, sin});
    save_value(context, pairs);
    return with_whole("rotary_embedding", {input, cos, sin},
                      [&] { return kernels::rotary_embedding(input, cos, sin, pairs); });
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_create_graph("rotary_embedding");
    const variable_list saved = context->get_saved_variables();
    const auto pairs = saved_value<kernels::RotaryPairs>(context);
    const at::Tensor grad = with_whole("rotary_embedding", {gradients[0], saved[0], saved[1]}, [&] {
      return kernels::rotary_embedding(gradients[0], saved[0], saved[1], pairs, /*backward=*/true);
    });
    return {grad, {}, {}, {}};
  }
};

}  // namespace

at::Tensor masked_softmax(const at::Tensor& scores, const OptionalTensor& mask, double scale) {
  require_defined("masked_softmax", {{"scores", scores}});
  return MaskedSoftmax::apply(scores, mask, scale, wants_gradient(mask));
}

RotaryTables rotary_tables(int64_t positions, int64_t rotary, double base, const at::Device& device,
                           int64_t first_position, at::ScalarType dtype) {
  const kernels::RotaryTables tables =
      kernels::rotary_tables(positions, rotary, base, device, first_position, dtype);
  return {tables.cos, tables.sin};
}

at::Tensor rotary_embedding(const at::Tensor& input, const at::Tensor& cos, const at::Tensor& sin,
                            RotaryPairs pairs) {
  require_defined("rotary_embedding", {{"input", input}, {"cos", cos}, {"sin", sin}});
  if (wants_gradient(cos) || wants_gradient(sin)) {
    raise<UsageError>("cos or sin requires a gradient, but they take none; pass their detach()");
  }
  return RotaryEmbedding::apply(input, cos, sin, kernel_pairs(pairs));
}

}  // namespace deepspeed::ops
