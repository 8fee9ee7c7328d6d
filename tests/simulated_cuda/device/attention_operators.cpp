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
#include "tests/simulated_cuda/device/graphs.h"

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

/// An attention over the memory that its tensors have on the CPU.
struct AttentionMaths {
  at::Tensor query, key, value, bias;
  at::ScalarType type;
  double ratio, scale;

  /// Returns the output and the logarithms of the rows' sums.
  std::array<at::Tensor, 2> forward(const Numbers& numbers) const {
    const at::Tensor scores = this->scores(), sums = scores.logsumexp(-1);
    const at::Tensor output =
        at::matmul(dropped(scores.sub(sums.unsqueeze(-1)).exp_(), numbers), wide(value));
    // As torch's kernels lay it out.
    return {output.transpose(1, 2).to(type).contiguous().transpose(1, 2), sums};
  }

  /// Returns the gradients of query, key and value.
  std::array<at::Tensor, 3> backward(const at::Tensor& gradient, const at::Tensor& output,
                                     const at::Tensor& sums, const Numbers& numbers) const {
    const at::Tensor grad = wide(gradient), probabilities = scores().sub(wide(sums).unsqueeze(-1)).exp_();
    const at::Tensor of_values = at::matmul(dropped(probabilities, numbers).transpose(2, 3), grad);
    const at::Tensor of_dropped = dropped(at::matmul(grad, wide(value).transpose(2, 3)), numbers);
    const at::Tensor of_scores =
        probabilities * (of_dropped - (grad * wide(output)).sum(-1, /*keepdim=*/true)) * scale;
    const at::Tensor of_queries = at::matmul(of_scores, wide(key));
    const at::Tensor of_keys = at::matmul(of_scores.transpose(2, 3), wide(query));
    return {of_queries.to(type), of_keys.to(type), of_values.to(type)};
  }

 private:
  static at::Tensor wide(const at::Tensor& tensor) { return tensor.to(at::kFloat); }
  at::Tensor scores() const {
    const at::Tensor products = at::matmul(wide(query), wide(key).transpose(2, 3)).mul_(scale);
    return bias.defined() ? products + wide(bias) : products;
  }
  at::Tensor dropped(const at::Tensor& values, const Numbers& numbers) const {
    return ratio == 0 ? values : values * numbers.factors(values, ratio);
  }
};

/// The work of an attention on the device.
class Attention {
  at::Tensor on_cpu(const at::Tensor& tensor) { return call_.on_cpu(tensor, false); }

  template <class Work>
  auto run(const Work& work) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    call_.launch();
    auto results = work();
    call_.finish();
    auto places = results;
    for (size_t i = 0; i < results.size(); ++i) {
      results[i] = call_.on_device(results[i]);
      places[i] = Call("a result of a graph").on_cpu(results[i], false);
    }
    repeat_in_graph([work, places] {
      const auto again = work();
      for (size_t i = 0; i < places.size(); ++i) places[i].copy_(again[i]);
    });
    return results;
  }

 public:
  Attention(const char* name, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
            const at::Tensor& bias, double ratio, std::optional<double> scale)
      : call_(name), maths_{on_cpu(query),       on_cpu(key), on_cpu(value),    on_cpu(bias),
                            query.scalar_type(), ratio,       scale.value_or(0)} {
    TORCH_CHECK(scale.has_value(), name, ": the scale is expected");
  }

  std::pair<at::Tensor, at::Tensor> forward(const Numbers& numbers) {
    const auto [output, sums] = run([maths = maths_, numbers] { return maths.forward(numbers); });
    return {output, sums};
  }

  Gradients backward(const at::Tensor& gradient, const at::Tensor& output, const at::Tensor& sums,
                     const Numbers& numbers) {
    const auto [of_queries, of_keys, of_values] =
        run([maths = maths_, grad = on_cpu(gradient), out = on_cpu(output), of_rows = on_cpu(sums), numbers] {
          return maths.backward(grad, out, of_rows, numbers);
        });
    return {of_queries, of_keys, of_values};
  }

 private:
  Call call_;
  AttentionMaths maths_;
};

at::Tensor scalar_of(int64_t value) { return at::scalar_tensor(value, at::kLong); }

at::Tensor number_on(const at::Tensor& query, int64_t value) {
  return at::full({}, value, query.options().dtype(at::kLong));
}

/// Returns the seed and the offset as the kernels keep them for their backward, on the device.
at::Tensor state_of(const at::Tensor& query, const Numbers& numbers) {
  return at::stack({number_on(query, numbers.seed), number_on(query, numbers.offset)});
}

Numbers numbers_in(const at::Tensor& state) {
  if (!state.is_cuda()) return {};
  Call call("the state of dropout");
  const at::Tensor on_cpu = call.on_cpu(state, false);
  call.launch();
  call.finish();
  if (Graph::current() != nullptr) return {};  // dropout, which needs them, is not captured
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
          number_on(query, numbers.seed),
          number_on(query, numbers.offset),
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
