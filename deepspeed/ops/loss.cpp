#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include "deepspeed/kernels/arguments/op_arguments.h"
#include "deepspeed/kernels/ops/cross_entropy.h"
#include "deepspeed/ops/autograd_function.h"
#include "deepspeed/ops/dispatched.h"
#include "deepspeed/ops/functional.h"

namespace deepspeed::ops {
namespace {

/// What backward has to know beside tensors.
struct ChunkedLoss {
  kernels::WantedGradients wanted;
  LinearCrossEntropyOptions options;

  bool wants_any() const { return wanted.hidden || wanted.weight || wanted.bias; }
  bool makes_gradients_in_forward() const {
    return options.gradients_in_forward && options.reduction != Reduction::kNone && wants_any();
  }
  void save(AutogradContext& context) const {
    auto& data = context.saved_data;
    data["hidden"] = wanted.hidden;
    data["weight"] = wanted.weight;
    data["bias"] = wanted.bias;
    data["ignore_index"] = options.ignore_index;
    data["label_smoothing"] = options.label_smoothing;
    data["chunk_rows"] = options.chunk_rows;
    data["in_forward"] = makes_gradients_in_forward();
  }
};

struct Losses {
  at::Tensor losses;
  variable_list gradients;  // of hidden, weight and bias
  at::Tensor factors;       // of these; undefined with row_gradients
};

/// Runs over the chunks. Without `row_gradients` each loss counts once, and the gradients have factors.
Losses run_chunks(const variable_list& inputs, const at::Tensor& row_gradients,
                  const kernels::WantedGradients& wanted, int64_t ignore_index, double label_smoothing,
                  int64_t chunk_rows) {
  auto [losses, hidden, weight, bias, factors] = dispatched::linear_cross_entropy(
      inputs[0], inputs[1], or_none(inputs[2]), inputs[3], or_none(row_gradients), wanted.hidden,
      wanted.weight, wanted.bias, ignore_index, label_smoothing, chunk_rows);
  return {losses, {hidden, weight, bias}, factors};
}

/// Multiplies a gradient, which may be undefined, by a number: in its own memory or in other.
at::Tensor multiplied(const at::Tensor& gradient, const at::Tensor& factor, bool in_place) {
  if (!gradient.defined()) return gradient;
  const at::Tensor result = in_place ? gradient : at::empty_like(gradient);
  kernels::multiply_by(gradient, factor, result);
  return result;
}

/// Returns what each loss counts for, as one number: 1 / (number of rows that count), or 1.
at::Tensor weight_of_losses(const at::Tensor& targets, const ChunkedLoss& loss, at::ScalarType dtype) {
  const at::TensorOptions options = targets.options().dtype(dtype);
  if (loss.options.reduction != Reduction::kMean) return at::ones({}, options);
  return targets.ne(loss.options.ignore_index).sum().to(dtype).reciprocal_();
}

/// hidden [rows, features], weight, bias or undefined, targets [rows]. Returns the loss, or losses [rows].
struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const OptionalTensor& bias, const at::Tensor& targets, const ChunkedLoss& loss) {
    const LinearCrossEntropyOptions& options = loss.options;
    const at::ScalarType wide = hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor each = weight_of_losses(targets, loss, wide);
    const bool in_forward = loss.makes_gradients_in_forward();
    const variable_list inputs{hidden, weight, or_undefined(bias), targets};
    const Losses made = run_chunks(inputs, {}, in_forward ? loss.wanted : kernels::WantedGradients(),
                                   options.ignore_index, options.label_smoothing, options.chunk_rows);
    loss.save(*context);
    variable_list saved = in_forward ? made.gradients : inputs;
    // Where no row counts, each is infinite and the gradients are zeros, as torch's.
    saved.push_back(in_forward ? made.factors.mul(each.clamp_max(1)) : each);
    context->save_for_backward(saved);
    if (options.reduction == Reduction::kNone) return made.losses;
    return made.losses.sum().mul_(each);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_create_graph("linear_cross_entropy");
    auto& data = context->saved_data;
    const variable_list saved = context->get_saved_variables();
    variable_list made;
    if (data["in_forward"].toBool()) {
      const bool is_last = !torch::autograd::get_current_graph_task_keep_graph();
      const at::Tensor factors = saved[3].mul(gradients[0]);
      for (int i = 0; i < 3; ++i) made.push_back(multiplied(saved[i], factors.select(0, i), is_last));
    } else {
      const variable_list inputs(saved.begin(), saved.begin() + 4);
      const at::Tensor row_gradients = gradients[0].mul(saved[4]).expand({inputs[3].numel()}).contiguous();
      const kernels::WantedGradients wanted{data["hidden"].toBool(), data["weight"].toBool(),
                                            data["bias"].toBool()};
      made = run_chunks(inputs, row_gradients, wanted, data["ignore_index"].toInt(),
                        data["label_smoothing"].toDouble(), data["chunk_rows"].toInt())
                 .gradients;
    }
    return {made[0], made[1], made[2], {}, {}};
  }
};

/// Returns the tensor in autocast's dtype, where autocast is on.
at::Tensor in_autocast_dtype(const at::Tensor& tensor) {
  const at::DeviceType device = tensor.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return tensor;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
}

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& given_hidden, const at::Tensor& given_weight,
                                const at::Tensor& targets, const OptionalTensor& given_bias,
                                const LinearCrossEntropyOptions& options) {
  require_defined("linear_cross_entropy",
                  {{"hidden", given_hidden}, {"weight", given_weight}, {"targets", targets}});
  const at::Tensor hidden = in_autocast_dtype(given_hidden), weight = in_autocast_dtype(given_weight);
  const OptionalTensor bias =
      given_bias && given_bias->defined() ? OptionalTensor(in_autocast_dtype(*given_bias)) : OptionalTensor();
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
