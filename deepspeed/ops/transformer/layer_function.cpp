// 1. transformer_layer() does autocast's casts and checks the arguments (layer_arguments.h).
// 2. LayerNode::forward draws the seeds of dropout, computes while the weights are gathered (with_whole), and
//    saves the weights, the mask and the Activations.
// 3. LayerNode::backward reverses the steps. It computes again what the options did not keep: the GELU, the
//    dropped probabilities, the inputs of layer norms. It skips products for gradients that are not needed.
#include "deepspeed/ops/transformer/layer_function.h"

#include <string>
#include <tuple>
#include <vector>

#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/ops/activations.h"
#include "deepspeed/kernels/ops/dropout.h"
#include "deepspeed/kernels/ops/normalization.h"
#include "deepspeed/ops/autograd/autocast.h"
#include "deepspeed/ops/autograd/function.h"
#include "deepspeed/ops/autograd/whole_tensors.h"
#include "deepspeed/ops/transformer/attention.h"
#include "deepspeed/ops/transformer/layer_arguments.h"
#include "deepspeed/ops/transformer/products.h"
#include "deepspeed/tensor/saved_value.h"
#include "deepspeed/tensor/struct_members.h"

namespace deepspeed::ops {
namespace {

using kernels::Philox;

constexpr size_t kNumWeights = kTransformerWeights.size();

/// Holds what backward needs from forward, apart from the weights and the mask.
struct Activations {
  at::Tensor input;         // hidden_states; undefined for pre-LN with normalize_invertible
  at::Tensor normed;        // pre-LN: LN(input), [T, H]
  at::Tensor context;       // result of the attention, [T, H]
  at::Tensor middle_sum;    // r, [T, H]; undefined with normalize_invertible
  at::Tensor middle;        // f, [T, H]
  at::Tensor intermediate;  // f Wi^T, [T, I]
  at::Tensor activated;     // its GELU; undefined with gelu_checkpoint
  at::Tensor output_sum;    // post-LN: the last norm's input, [T, H]; undefined with normalize_invertible
  at::Tensor output;        // post-LN with normalize_invertible: the layer's output
  at::Tensor mean, rstd;    // of the norm with norm_w, [T]; mean is undefined with normalize_invertible
  at::Tensor middle_mean, middle_rstd;
};

/// Holds the arguments and choices of a call that are not tensors.
struct LayerCall {
  DeepSpeedTransformerConfig options;  // ratios are 0 outside of training
  int64_t batch = 0, sequence = 0;
  Philox probabilities = {}, attention_output = {}, layer_output = {};  // for the three dropouts
  AttentionKind attention_kind = AttentionKind::kWritten;               // that forward used

  std::string name() const { return layer_name(options); }
  AttentionCall attention(const at::Tensor& mask) const {
    return {batch,
            sequence,
            options.heads,
            mask,
            options.attn_dropout_ratio,
            probabilities,
            options.seed >= 0,
            options.attn_dropout_checkpoint};
  }
};

/// Holds the arguments of the node that autograd does not differentiate.
struct LayerArguments {
  at::Tensor mask;
  LayerCall call;
};

at::Tensor flat(const at::Tensor& states) { return states.view({-1, states.size(-1)}); }

Philox draw(const DeepSpeedTransformerConfig& options, double ratio, const at::Device& device) {
  if (ratio == 0) return {};
  Philox philox = kernels::next_philox(device);
  if (options.seed >= 0) philox.seed = static_cast<uint64_t>(options.seed);
  return philox;
}

/// Returns the output, with the shape of x. Fills `kept` and `attended`.
at::Tensor run_forward(const at::Tensor& x, const at::Tensor& mask, const TransformerWeights& w,
                       const LayerCall& call, Activations& kept, AttentionResult& attended) {
  const DeepSpeedTransformerConfig& options = call.options;
  const double ratio = options.hidden_dropout_ratio, eps = options.layer_norm_eps;
  const bool keeps_sums = !options.normalize_invertible;
  const at::Tensor input = flat(x);
  if (options.pre_layer_norm) {
    const auto norm = kernels::layer_norm(input, {}, w.norm_w, w.norm_b, eps);
    kept.normed = norm.output;
    kept.rstd = norm.rstd;
    if (keeps_sums) kept.mean = norm.mean;
  }
  if (keeps_sums || !options.pre_layer_norm) kept.input = x;

  const at::Tensor& multiplied = options.pre_layer_norm ? kept.normed : input;
  const at::Tensor qkv = add_product(w.attn_qkvb, multiplied, w.attn_qkvw.t());
  attended = attention(qkv, call.attention(mask));
  kept.context = attended.context;
  const at::Tensor middle_sum = kernels::bias_dropout_residual(
      product(kept.context, w.attn_ow.t()), w.attn_ob, input, ratio, call.attention_output);

  const auto middle = kernels::layer_norm(middle_sum, {}, w.attn_nw, w.attn_nb, eps);
  kept.middle = middle.output;
  kept.middle_rstd = middle.rstd;
  if (keeps_sums) kept.middle_mean = middle.mean;
  if (keeps_sums) kept.middle_sum = middle_sum;
  kept.intermediate = product(kept.middle, w.inter_w.t());
  const at::Tensor activated = kernels::bias_gelu(kept.intermediate, w.inter_b);
  if (!options.gelu_checkpoint) kept.activated = activated;
  const at::Tensor output_sum = kernels::bias_dropout_residual(
      product(activated, w.output_w.t()), w.output_b, options.pre_layer_norm ? middle_sum : kept.middle,
      ratio, call.layer_output);
  if (options.pre_layer_norm) return output_sum.view(x.sizes());

  const auto norm = kernels::layer_norm(output_sum, {}, w.norm_w, w.norm_b, eps);
  const at::Tensor output = norm.output.view(x.sizes());
  kept.rstd = norm.rstd;
  if (keeps_sums) kept.mean = norm.mean;
  if (keeps_sums) kept.output_sum = output_sum;
  if (!keeps_sums) kept.output = output;
  return output;
}

/// Computes the backward of one layer. The members are shared by its steps.
class LayerBackward {
 public:
  LayerBackward(const Activations& kept, variable_list attention_kept, const at::Tensor& mask,
                const TransformerWeights& w, const LayerCall& call, const std::vector<bool>& wanted)
      : kept_(kept),
        attention_kept_(std::move(attention_kept)),
        mask_(mask),
        w_(w),
        call_(call),
        wanted_(wanted) {}

  /// Returns the gradients of hidden_states and of the weights; undefined for those not wanted.
  variable_list run(const at::Tensor& grad_output) {
    const at::Tensor gradient = flat(grad_output.contiguous());
    return call_.options.pre_layer_norm ? run_pre_norm(gradient) : run_post_norm(gradient);
  }

 private:
  variable_list run_pre_norm(const at::Tensor& gradient) {
    const at::Tensor grad_middle = feed_forward(gradient);
    const at::Tensor grad_sum = middle_norm(product(grad_middle, w_.inter_w), gradient);
    const at::Tensor grad_qkv = attend(grad_sum, kept_.normed);
    const at::Tensor sum = kept_.input.defined() ? flat(kept_.input) : at::Tensor();
    return finish(outer_norm(product(grad_qkv, w_.attn_qkvw), sum, kept_.normed, grad_sum));
  }

  variable_list run_post_norm(const at::Tensor& gradient) {
    const at::Tensor output = kept_.output.defined() ? flat(kept_.output) : at::Tensor();
    const at::Tensor grad_sum = outer_norm(gradient, kept_.output_sum, output, {});
    const at::Tensor grad_middle = feed_forward(grad_sum);
    const at::Tensor grad_middle_sum = middle_norm(add_product(grad_sum, grad_middle, w_.inter_w), {});
    const at::Tensor grad_qkv = attend(grad_middle_sum, flat(kept_.input));
    if (!wanted_[0]) return finish({});
    return finish(add_product(grad_middle_sum, grad_qkv, w_.attn_qkvw));
  }

  /// Returns the gradient of f Wi^T, given that of the feed-forward's output.
  at::Tensor feed_forward(const at::Tensor& gradient) {
    const at::Tensor output =
        dropped_bias(gradient, &TransformerWeights::output_b, w_.output_b, call_.layer_output);
    const at::Tensor activated =
        kept_.activated.defined() ? kept_.activated : kernels::bias_gelu(kept_.intermediate, w_.inter_b);
    matrix<&TransformerWeights::output_w>(output, activated);
    const auto gelu =
        kernels::bias_gelu_backward(product(output, w_.output_w), kept_.intermediate, w_.inter_b);
    gradients_.inter_b = gelu.bias;
    matrix<&TransformerWeights::inter_w>(gelu.input, kept_.middle);
    return gelu.input;
  }

  /// Returns the gradient of r, given that of f. `grad_sum` is added if defined.
  at::Tensor middle_norm(const at::Tensor& gradient, const at::Tensor& grad_sum) {
    const auto norm = norm_backward(gradient, kept_.middle_sum, kept_.middle, kept_.middle_mean,
                                    kept_.middle_rstd, "attn_nw", w_.attn_nw, w_.attn_nb, grad_sum);
    gradients_.attn_nw = norm.weight;
    gradients_.attn_nb = norm.bias;
    return norm.input;
  }

  at::Tensor outer_norm(const at::Tensor& gradient, const at::Tensor& sum, const at::Tensor& output,
                        const at::Tensor& grad_sum) {
    const auto norm = norm_backward(gradient, sum, output, kept_.mean, kept_.rstd, "norm_w", w_.norm_w,
                                    w_.norm_b, grad_sum);
    gradients_.norm_w = norm.weight;
    gradients_.norm_b = norm.bias;
    return norm.input;
  }

  /// Returns the gradient of queries, keys and values, given that of r. `attended` was the input of the
  /// product that made the three.
  at::Tensor attend(const at::Tensor& gradient, const at::Tensor& attended) {
    const at::Tensor output =
        dropped_bias(gradient, &TransformerWeights::attn_ob, w_.attn_ob, call_.attention_output);
    matrix<&TransformerWeights::attn_ow>(output, kept_.context);
    const at::Tensor grad_qkv =
        attention_backward(product(output, w_.attn_ow),
                           {call_.attention_kind, kept_.context, attention_kept_}, call_.attention(mask_));
    matrix<&TransformerWeights::attn_qkvw>(grad_qkv, attended);
    gradients_.attn_qkvb = sum_of_rows(grad_qkv, w_.attn_qkvb);
    return grad_qkv;
  }

  at::Tensor dropped_bias(const at::Tensor& gradient, at::Tensor TransformerWeights::*bias_gradient,
                          const at::Tensor& bias, const Philox& philox) {
    const double ratio = call_.options.hidden_dropout_ratio;
    if (ratio == 0) {  // dropout's gradient is its argument
      gradients_.*bias_gradient = sum_of_rows(gradient, bias);
      return gradient;
    }
    auto found = kernels::bias_dropout_residual_backward(gradient, bias, ratio, philox);
    gradients_.*bias_gradient = std::move(found.bias);
    return found.input;
  }

  static at::Tensor sum_of_rows(const at::Tensor& gradient, const at::Tensor& bias) {
    return gradient.sum(0, /*keepdim=*/false, bias.scalar_type());
  }

  template <at::Tensor TransformerWeights::*weight>
  void matrix(const at::Tensor& gradient, const at::Tensor& input) {
    if (wanted_[1 + index_of(weight)]) gradients_.*weight = product(gradient.t(), input);
  }

  kernels::NormGradients norm_backward(const at::Tensor& gradient, const at::Tensor& sum,
                                       const at::Tensor& output, const at::Tensor& mean,
                                       const at::Tensor& rstd, const char* name, const at::Tensor& weight,
                                       const at::Tensor& bias, const at::Tensor& grad_sum) const {
    if (sum.defined()) return kernels::layer_norm_backward(gradient, sum, mean, rstd, weight, bias, grad_sum);
    if (weight.is_cpu() && !weight.all().item<bool>()) {
      raise<UsageError>(call_.name(), ": ", name,
                        " has a 0, from which normalize_invertible cannot go back; leave that off");
    }
    return kernels::layer_norm_backward_from_output(gradient, output, rstd, weight, bias, grad_sum);
  }

  variable_list finish(const at::Tensor& grad_input) const {
    variable_list found;
    if (wanted_[0]) {
      found.push_back(grad_input.view({call_.batch, call_.sequence, -1}));
    } else {
      found.emplace_back();
    }
    for (size_t i = 0; i < kNumWeights; ++i) {
      found.push_back(wanted_[1 + i] ? gradients_.*kTransformerWeights[i].member : at::Tensor());
    }
    return found;
  }

  const Activations& kept_;
  const variable_list attention_kept_;
  const at::Tensor& mask_;
  const TransformerWeights& w_;
  const LayerCall& call_;
  const std::vector<bool>& wanted_;
  TransformerWeights gradients_;
};

class LayerNode : public torch::autograd::Function<LayerNode> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden_states, at::TensorList weights,
                            const LayerArguments& arguments) {
    LayerCall call = arguments.call;
    const DeepSpeedTransformerConfig& options = call.options;
    const at::Device device = hidden_states.device();
    call.probabilities = draw(options, options.attn_dropout_ratio, device);
    call.attention_output = draw(options, options.hidden_dropout_ratio, device);
    call.layer_output = draw(options, options.hidden_dropout_ratio, device);
    Activations kept;
    AttentionResult attended;
    const at::Tensor output = with_whole("transformer_layer", weights, [&] {
      return run_forward(hidden_states.contiguous(), arguments.mask, weights_of(weights), call, kept,
                         attended);
    });
    call.attention_kind = attended.kind;
    variable_list saved = weights.vec();
    saved.push_back(arguments.mask);
    std::apply([&](const auto&... tensors) { (saved.push_back(tensors), ...); },
               visit_detail::tie_members(kept));
    saved.insert(saved.end(), attended.kept.begin(), attended.kept.end());
    context->save_for_backward(std::move(saved));
    save_value(context, std::move(call));
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto call = saved_value<LayerCall>(context);
    refuse_create_graph(call.name());
    const variable_list saved = context->get_saved_variables();
    const at::TensorList weights = at::TensorList(saved).slice(0, kNumWeights);
    size_t next = kNumWeights;
    const at::Tensor mask = saved[next++];
    Activations kept;
    std::apply([&](auto&... tensors) { ((tensors = saved[next++]), ...); }, visit_detail::tie_members(kept));
    std::vector<bool> wanted;
    for (size_t i = 0; i <= kNumWeights; ++i) wanted.push_back(context->needs_input_grad(i));
    const variable_list attention_kept(saved.begin() + static_cast<std::ptrdiff_t>(next), saved.end());
    variable_list found = with_whole("transformer_layer_backward", weights, [&] {
      const TransformerWeights whole = weights_of(weights);
      return LayerBackward(kept, attention_kept, mask, whole, call, wanted).run(gradients[0]);
    });
    found.emplace_back();  // for `arguments`
    return found;
  }
};

DeepSpeedTransformerConfig without_dropout(DeepSpeedTransformerConfig config) {
  config.attn_dropout_ratio = config.hidden_dropout_ratio = 0;
  return config;
}

}  // namespace

at::Tensor transformer_layer(const at::Tensor& hidden_states, const at::Tensor& attention_mask,
                             const TransformerWeights& weights, const DeepSpeedTransformerConfig& config,
                             bool is_training) {
  const DeepSpeedTransformerConfig options =
      is_training && config.training ? config : without_dropout(config);
  at::Tensor x = hidden_states;
  TransformerWeights cast = weights;
  if (is_autocast(x)) {
    x = in_autocast_dtype(x);
    for (const TransformerWeight& weight : kTransformerWeights) {
      if (weight.is_matrix()) cast.*weight.member = in_autocast_dtype(cast.*weight.member);
    }
  }
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  check_states(x, options);
  check_weights(x, cast, options);
  const variable_list list = list_of(cast);
  const at::AutoGradMode with_grad(at::GradMode::is_enabled() && options.is_grad_enabled);
  const LayerArguments arguments{checked_mask(attention_mask, x, options),
                                 LayerCall{options, x.size(0), x.size(1)}};
  return LayerNode::apply(x, at::TensorList(list), arguments);
}

}  // namespace deepspeed::ops
