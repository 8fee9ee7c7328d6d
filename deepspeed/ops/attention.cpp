#include <ATen/ExpandUtils.h>
#include <torch/csrc/autograd/custom_function.h>

#include "deepspeed/kernels/ops/masked_softmax.h"
#include "deepspeed/kernels/ops/rotary.h"
#include "deepspeed/ops/autograd_function.h"
#include "deepspeed/ops/dispatched.h"
#include "deepspeed/ops/functional.h"

namespace deepspeed::ops {
namespace {

/// Keeps its output. A mask that learns takes the gradient of the softmax's argument, summed over what it
/// broadcasts to.
struct MaskedSoftmax : torch::autograd::Function<MaskedSoftmax> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores, const OptionalTensor& mask,
                            double scale, bool learns_mask) {
    const at::Tensor output = dispatched::masked_softmax(scores, mask, scale);
    context->save_for_backward({output});
    context->saved_data["scale"] = scale;
    if (learns_mask) {
      context->saved_data["mask_sizes"] = mask->sizes().vec();
      context->saved_data["mask_dtype"] = static_cast<int64_t>(mask->scalar_type());
    }
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_create_graph("masked_softmax");
    auto& data = context->saved_data;
    const double scale = data["scale"].toDouble();
    const at::Tensor output = context->get_saved_variables()[0];
    if (data.count("mask_sizes") == 0) {
      return {kernels::masked_softmax_backward(gradients[0], output, scale), {}, {}, {}};
    }
    const at::Tensor grad = kernels::masked_softmax_backward(gradients[0], output, 1.0);
    const auto dtype = static_cast<at::ScalarType>(data["mask_dtype"].toInt());
    const at::Tensor grad_mask = at::sum_to(grad.to(dtype), data["mask_sizes"].toIntVector());
    return {grad.mul(scale), grad_mask, {}, {}};
  }
};

struct RotaryEmbedding : torch::autograd::Function<RotaryEmbedding> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& cos,
                            const at::Tensor& sin, bool neighbours) {
    context->save_for_backward({cos, sin});
    context->saved_data["neighbours"] = neighbours;
    return kernels::rotary_embedding(input, cos, sin, pairs_of(neighbours));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_create_graph("rotary_embedding");
    const variable_list saved = context->get_saved_variables();
    const kernels::RotaryPairs pairs = pairs_of(context->saved_data["neighbours"].toBool());
    return {kernels::rotary_embedding(gradients[0], saved[0], saved[1], pairs, true), {}, {}, {}};
  }
  static kernels::RotaryPairs pairs_of(bool neighbours) {
    return neighbours ? kernels::RotaryPairs::kNeighbours : kernels::RotaryPairs::kHalves;
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
  return RotaryEmbedding::apply(input, cos, sin, pairs == RotaryPairs::kNeighbours);
}

}  // namespace deepspeed::ops
