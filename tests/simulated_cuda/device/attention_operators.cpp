// The fused attentions of CUDA, which have no kernel of the CPU: plain operators in fp32 over the same bytes,
// with the checks of torch's kernels. A device of ours prefers flash attention, then the memory-efficient
// one, then cuDNN's, as far as torch's switches allow them.
#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include "tests/simulated_cuda/device/call.h"
#include "tests/simulated_cuda/device/generator.h"

namespace deepspeed::simulated {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using FlashResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                               at::Tensor, at::Tensor, at::Tensor>;
using EfficientResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// The seed and the offset of a mask of dropout, which backward makes again.
struct Numbers {
  int64_t seed = 0, offset = 0;

  at::Tensor factors(const at::Tensor& scores, double ratio) const {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed * 1000003 + offset));
    const at::Tensor drawn = at::rand(scores.sizes(), generator, at::kFloat);
    return drawn.ge(ratio).to(at::kFloat).div_(1 - ratio);
  }
};

Numbers next_numbers(const at::Tensor& query, double ratio) {
  if (ratio == 0) return {};
  at::Generator generator = default_generator(query.get_device());
  const std::lock_guard lock(generator.mutex());
  const Numbers numbers{static_cast<int64_t>(generator.current_seed() >> 1),
                        static_cast<int64_t>(generator.get_offset())};
  generator.unsafeGetGeneratorImpl()->set_offset(generator.get_offset() + 4);
  return numbers;
}

void check_heads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double ratio) {
  for (const at::Tensor* const heads : {&query, &key, &value}) {
    TORCH_CHECK(heads->dim() == 4 && heads->sizes() == query.sizes(), "heads of one shape are expected");
    TORCH_CHECK(heads->scalar_type() == query.scalar_type(), "heads of one dtype are expected");
    TORCH_CHECK(heads->stride(3) == 1 && heads->size(3) % 8 == 0, "heads are not aligned");
  }
  TORCH_CHECK(ratio >= 0 && ratio < 1, "dropout_p is ", ratio);
}

void check_has_16_bits(const at::Tensor& query) {
  TORCH_CHECK(query.element_size() == 2, "expected fp16 or bf16, got ", query.scalar_type());
}

void check_efficient_bias(const at::Tensor& bias, const at::Tensor& query) {
  if (!bias.defined()) return;
  TORCH_CHECK(bias.scalar_type() == query.scalar_type(),
              "invalid dtype for bias - should match query's dtype");
  TORCH_CHECK(bias.dim() == 4 && bias.size(0) == query.size(0) && bias.size(1) == query.size(1) &&
                  bias.size(2) == query.size(2) && bias.size(3) == query.size(2),
              "attn_bias: wrong shape");
  TORCH_CHECK(bias.stride(3) == 1, "attn_bias: wrong alignment (last dimension must be contiguous)");
  for (int dim = 0; dim < 3; ++dim)
    TORCH_CHECK(bias.stride(dim) % 8 == 0, "attn_bias is not correctly aligned");
}

void check_cudnn_bias(const at::Tensor& bias, const at::Tensor& query) {
  if (bias.defined()) TORCH_CHECK(bias.scalar_type() == query.scalar_type(), "invalid dtype for bias");
}

/// An attention and the memory that its tensors have on the CPU.
class Attention {
 public:
  Attention(const char* name, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
            const at::Tensor& bias, double ratio, std::optional<double> scale)
      : call(name),
        type_(query.scalar_type()),
        query_(wide(query)),
        key_(wide(key)),
        value_(wide(value)),
        ratio_(ratio),
        scale_(scale.value_or(0)) {
    TORCH_CHECK(scale.has_value(), name, ": the scale is expected");
    if (bias.defined()) bias_ = wide(bias);
  }

  /// Returns the output and the logarithms of the rows' sums.
  std::pair<at::Tensor, at::Tensor> forward(const Numbers& numbers) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    call.launch();
    const at::Tensor scores = this->scores(), sums = scores.logsumexp(-1);
    const at::Tensor output = at::matmul(dropped(scores.sub(sums.unsqueeze(-1)).exp_(), numbers), value_);
    // As torch's kernels lay it out.
    const at::Tensor rows = output.transpose(1, 2).to(type_).contiguous().transpose(1, 2);
    call.finish();
    return {call.on_device(rows), call.on_device(sums)};
  }

  Gradients backward(const at::Tensor& gradient, const at::Tensor& output, const at::Tensor& sums,
                     const Numbers& numbers) {
    const at::Tensor grad = wide(gradient), out = wide(output), of_rows = wide(sums);
    const at::AutoDispatchBelowADInplaceOrView guard;
    call.launch();
    const at::Tensor probabilities = scores().sub(of_rows.unsqueeze(-1)).exp_();
    const at::Tensor of_values = at::matmul(dropped(probabilities, numbers).transpose(2, 3), grad);
    const at::Tensor of_dropped = dropped(at::matmul(grad, value_.transpose(2, 3)), numbers);
    const at::Tensor of_scores =
        probabilities * (of_dropped - (grad * out).sum(-1, /*keepdim=*/true)) * scale_;
    const at::Tensor of_queries = at::matmul(of_scores, key_);
    const at::Tensor of_keys = at::matmul(of_scores.transpose(2, 3), query_);
    call.finish();
    return {call.on_device(of_queries.to(type_)), call.on_device(of_keys.to(type_)),
            call.on_device(of_values.to(type_))};
  }

  Call call;

 private:
  at::Tensor wide(const at::Tensor& tensor) { return call.on_cpu(tensor, false).to(at::kFloat); }
  at::Tensor scores() const {
    const at::Tensor products = at::matmul(query_, key_.transpose(2, 3)).mul_(scale_);
    return bias_.defined() ? products + bias_ : products;
  }
  at::Tensor dropped(const at::Tensor& values, const Numbers& numbers) const {
    return ratio_ == 0 ? values : values * numbers.factors(values, ratio_);
  }

  at::ScalarType type_;
  at::Tensor query_, key_, value_, bias_;
  double ratio_, scale_;
};

at::Tensor scalar_of(int64_t value) { return at::scalar_tensor(value, at::kLong); }

/// Returns the seed and the offset as the kernels keep them for their backward, on the device.
at::Tensor state_of(const at::Tensor& query, const Numbers& numbers) {
  return at::tensor({numbers.seed, numbers.offset}, at::kLong).to(query.device());
}

Numbers numbers_in(const at::Tensor& state) {
  if (!state.is_cuda()) return {};
  Call call("the state of dropout");
  const at::Tensor on_cpu = call.on_cpu(state, false);
  call.launch();
  call.finish();
  return {on_cpu[0].item<int64_t>(), on_cpu[1].item<int64_t>()};
}

FlashResult flash(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double ratio,
                  bool is_causal, bool, std::optional<double> scale) {
  check_heads(query, key, value, ratio);
  check_has_16_bits(query);
  TORCH_CHECK(!is_causal, "the simulated device has no causal attention");
  const Numbers numbers = next_numbers(query, ratio);
  auto [output, sums] = Attention("flash", query, key, value, {}, ratio, scale).forward(numbers);
  return {output, sums, {}, {}, query.sym_size(2), key.sym_size(2), state_of(query, numbers), {}, {}};
}

Gradients flash_backward(const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key,
                         const at::Tensor& value, const at::Tensor& output, const at::Tensor& sums,
                         const at::Tensor&, const at::Tensor&, c10::SymInt most_queries,
                         c10::SymInt most_keys, double ratio, bool, const at::Tensor& state,
                         const at::Tensor&, std::optional<double> scale) {
  check_heads(query, key, value, ratio);
  TORCH_CHECK(most_queries == query.sym_size(2) && most_keys == key.sym_size(2), "wrong lengths");
  return Attention("flash_backward", query, key, value, {}, ratio, scale)
      .backward(gradient, output, sums, numbers_in(state));
}

EfficientResult efficient(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const OptionalTensor& given_bias, bool keeps_sums, double ratio, bool is_causal,
                          std::optional<double> scale) {
  const at::Tensor bias = given_bias.value_or(at::Tensor());
  check_heads(query, key, value, ratio);
  check_efficient_bias(bias, query);
  TORCH_CHECK(keeps_sums && !is_causal, "the simulated device has no causal attention, and keeps sums");
  const Numbers numbers = next_numbers(query, ratio);
  auto [output, sums] = Attention("efficient", query, key, value, bias, ratio, scale).forward(numbers);
  return {output, sums, scalar_of(numbers.seed), scalar_of(numbers.offset)};
}

EfficientResult efficient_backward(const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key,
                                   const at::Tensor& value, const at::Tensor& bias, const at::Tensor& output,
                                   const at::Tensor& sums, const at::Tensor& seed, const at::Tensor& offset,
                                   double ratio, std::array<bool, 4> wanted, bool,
                                   std::optional<double> scale) {
  check_heads(query, key, value, ratio);
  check_efficient_bias(bias, query);
  TORCH_CHECK(!wanted[3], "the simulated device has no gradient of a mask");
  auto [of_queries, of_keys, of_values] =
      Attention("efficient_backward", query, key, value, bias, ratio, scale)
          .backward(gradient, output, sums, {seed.item<int64_t>(), offset.item<int64_t>()});
  return {of_queries, of_keys, of_values, {}};
}

FlashResult cudnn(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const OptionalTensor& given_bias, bool keeps_sums, double ratio, bool is_causal, bool,
                  std::optional<double> scale) {
  const at::Tensor bias = given_bias.value_or(at::Tensor());
  check_heads(query, key, value, ratio);
  check_has_16_bits(query);
  check_cudnn_bias(bias, query);
  TORCH_CHECK(keeps_sums && !is_causal, "the simulated device has no causal attention, and keeps sums");
  const Numbers numbers = next_numbers(query, ratio);
  auto [output, sums] = Attention("cudnn", query, key, value, bias, ratio, scale).forward(numbers);
  return {output,
          sums,
          {},
          {},
          query.sym_size(2),
          key.sym_size(2),
          scalar_of(numbers.seed).to(query.device()),
          scalar_of(numbers.offset).to(query.device()),
          {}};
}

Gradients cudnn_backward(const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key,
                         const at::Tensor& value, const at::Tensor& output, const at::Tensor& sums,
                         const at::Tensor& seed, const at::Tensor& offset, const at::Tensor& bias,
                         const at::Tensor&, const at::Tensor&, c10::SymInt most_queries,
                         c10::SymInt most_keys, double ratio, bool, std::optional<double> scale) {
  check_heads(query, key, value, ratio);
  check_cudnn_bias(bias, query);
  TORCH_CHECK(most_queries == query.sym_size(2) && most_keys == key.sym_size(2), "wrong lengths");
  const at::Tensor state = at::stack({seed, offset});
  return Attention("cudnn_backward", query, key, value, bias, ratio, scale)
      .backward(gradient, output, sums, numbers_in(state));
}

int64_t choice(const at::Tensor& query, const at::Tensor&, const at::Tensor&, const OptionalTensor& bias,
               double, bool, std::optional<double>, bool) {
  const at::Context& switches = at::globalContext();
  const bool has_16_bits = query.element_size() == 2;
  at::SDPBackend chosen = at::SDPBackend::math;
  if (query.scalar_type() == at::kDouble) {
    chosen = at::SDPBackend::math;
  } else if (has_16_bits && !bias.has_value() && switches.userEnabledFlashSDP()) {
    chosen = at::SDPBackend::flash_attention;
  } else if (switches.userEnabledMemEfficientSDP()) {
    chosen = at::SDPBackend::efficient_attention;
  } else if (has_16_bits && switches.userEnabledCuDNNSDP()) {
    chosen = at::SDPBackend::cudnn_attention;
  }
  return static_cast<int64_t>(chosen);
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_fused_sdp_choice", &choice);
  library.impl("_scaled_dot_product_flash_attention", &flash);
  library.impl("_scaled_dot_product_flash_attention_backward", &flash_backward);
  library.impl("_scaled_dot_product_efficient_attention", &efficient);
  library.impl("_scaled_dot_product_efficient_attention_backward", &efficient_backward);
  library.impl("_scaled_dot_product_cudnn_attention", &cudnn);
  library.impl("_scaled_dot_product_cudnn_attention_backward", &cudnn_backward);
}

}  // namespace
}  // namespace deepspeed::simulated
