#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include "deepspeed/kernels/arguments/op_arguments.h"
#include "deepspeed/kernels/ops/cross_entropy.h"
#include "deepspeed/ops/autograd/autocast.h"
#include "deepspeed/ops/autograd/function.h"
#include "deepspeed/ops/autograd/whole_tensors.h"
#include "deepspeed/ops/functional.h"
#include "deepspeed/tensor/saved_value.h"

namespace deepspeed::ops {
namespace {

/// Holds what backward needs besides tensors.
struct ChunkedLoss {
  kernels::WantedGradients wanted;
  LinearCrossEntropyOptions options;

  bool wants_any() const { return wanted.hidden || wanted.weight || wanted.bias; }
  bool makes_gradients_in_forward() const {
    return options.gradients_in_forward && options.reduction != Reduction::kNone && wants_any();
  }
};

/// Returns all losses and the wanted gradients. `inputs` are hidden, weight, bias and targets. Without
/// `row_gradients` each loss has weight 1, and the caller must still multiply the gradients by their
/// `factors`.
kernels::LinearCrossEntropy run_chunks(const variable_list& inputs, const at::Tensor& row_gradients,
                                       const kernels::WantedGradients& wanted,
                                       const LinearCrossEntropyOptions& options) {
  return with_whole("linear_cross_entropy", inputs, [&] {
    return kernels::linear_cross_entropy(inputs[0], inputs[1], inputs[2], inputs[3], row_gradients, wanted,
                                         {options.ignore_index, options.label_smoothing}, options.chunk_rows);
  });
}

/// Returns a gradient, which may be undefined, times `factor`. `in_place` writes into the gradient's memory.
at::Tensor multiplied(const at::Tensor& gradient, const at::Tensor& factor, bool in_place) {
  if (!gradient.defined()) return gradient;
  const at::Tensor result = in_place ? gradient : at::empty_like(gradient);
  kernels::multiply_by(gradient, factor, result);
  return result;
}

/// Returns the weight of every loss. It is 1, or for a mean 1 / (number of rows that count).
at::Tensor weight_of_losses(const at::Tensor& targets, const ChunkedLoss& loss, at::ScalarType dtype) {
  const at::TensorOptions options = targets.options().dtype(dtype);
  if (loss.options.reduction != Reduction::kMean) return at::ones({}, options);
  return targets.ne(loss.options.ignore_index).sum().to(dtype).reciprocal_();
}

/// Computes the loss; without a reduction the losses, [rows]. `hidden` is [rows, features], `targets` [rows].
struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const OptionalTensor& bias, const at::Tensor& targets, const ChunkedLoss& loss) {
    const LinearCrossEntropyOptions& options = loss.options;
    const at::ScalarType wide = hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor each = weight_of_losses(targets, loss, wide);
    const bool in_forward = loss.makes_gradients_in_forward();
    const variable_list inputs{hidden, weight, or_undefined(bias), targets};
    const kernels::LinearCrossEntropy made =
        run_chunks(inputs, {}, in_forward ? loss.wanted : kernels::WantedGradients(), options);
    const kernels::LinearCrossEntropyGradients& of_losses = made.gradients;
    variable_list saved =
        in_forward ? variable_list{of_losses.hidden, of_losses.weight, of_losses.bias} : inputs;
    // If no row counts, the weight is infinite and the gradients are zeros, as in torch.
    saved.push_back(in_forward ? of_losses.factors.mul(each.clamp_max(1)) : each);
    save_value(context, loss);
    context->save_for_backward(saved);
    if (options.reduction == Reduction::kNone) return made.losses;
    return made.losses.sum().mul_(each);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_create_graph("linear_cross_entropy");
    const auto loss = saved_value<ChunkedLoss>(context);
    const variable_list saved = context->get_saved_variables();
    if (loss.makes_gradients_in_forward()) {
      const bool is_last = !torch::autograd::get_current_graph_task_keep_graph();
      const at::Tensor factors = saved[3].mul(gradients[0]);
      const auto scaled = [&](int i) {
        return multiplied(saved[static_cast<size_t>(i)], factors.select(0, i), is_last);
      };
      return {scaled(0), scaled(1), scaled(2), {}, {}};
    }
    const variable_list inputs(saved.begin(), saved.begin() + 4);
    const at::Tensor row_gradients = gradients[0].mul(saved[4]).expand({inputs[3].numel()}).contiguous();
    const auto made = run_chunks(inputs, row_gradients, loss.wanted, loss.options).gradients;
    return {made.hidden, made.weight, made.bias, {}, {}};
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& given_hidden, const at::Tensor& given_weight,
                                const at::Tensor& targets, const OptionalTensor& given_bias,
                                const LinearCrossEntropyOptions& options) {
  require_defined("linear_cross_entropy",
                  {{"hidden", given_hidden}, {"weight", given_weight}, {"targets", targets}});
  const at::Tensor hidden = in_autocast_dtype(given_hidden), weight = in_autocast_dtype(given_weight);
  OptionalTensor bias;  // an undefined tensor is no argument of an autograd function
  if (given_bias && given_bias->defined()) bias = in_autocast_dtype(*given_bias);
  if (hidden.dim() == 0 ||
      targets.sizes() != hidden.sizes().slice(0, static_cast<size_t>(hidden.dim() - 1))) {
    raise<UsageError>("targets has shape ", targets.sizes(), ", expected that of hidden, ", hidden.sizes(),
                      ", without its last dimension");
  }
  const kernels::WantedGradients wanted{wants_gradient(hidden), wants_gradient(weight), wants_gradient(bias)};
  const at::Tensor loss =
      LinearCrossEntropy::apply(hidden.reshape({targets.numel(), hidden.size(-1)}), weight, bias,
                                targets.reshape({-1}), ChunkedLoss{wanted, options});
  return options.reduction == Reduction::kNone ? loss.reshape(targets.sizes()) : loss;
}

}  // namespace deepspeed::ops
